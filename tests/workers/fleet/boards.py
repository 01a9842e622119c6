"""The board's real server as a child of a test."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from workers.fleet.embedded_board import answers, command

START_S = 15.0


class RunningBoard:
    """``start`` returns when it answers, ``stop`` when it has written everything and ended."""

    def __init__(self, socket: Path, data: Path, log: Path) -> None:
        self.socket, self.url, self.log = socket, f"unix://{socket}", log
        data.mkdir(parents=True, exist_ok=True)
        self._command = command(socket, data, log)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        until = time.monotonic() + START_S
        while not answers(self.socket):
            assert self._process.poll() is None, self.log.read_text(errors="replace")
            assert time.monotonic() < until
            time.sleep(0.005)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(START_S)
