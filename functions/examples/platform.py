"""The platform as its operator sees it: the process ``despina up``, the command ``despina``, and what is left afterwards."""

from __future__ import annotations

import ctypes
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).with_name("despina")
READY = re.compile(r"ready http=(\S+) metrics=(\S+)")
START_S, STOP_S, COMMAND_S = 60.0, 60.0, 180.0
PR_SET_CHILD_SUBREAPER = 36


class PlatformFailed(Exception):
    """It did not start, did not stop, or a command failed; the message has its last words."""


class Platform:
    """One ``despina up`` on free ports, with its state in ``data``. The constructor returns when it serves, or raises PlatformFailed."""

    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self._log = data / "up.log"
        http_port, metrics_port = free_ports(2)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [COMMAND, "up", "--data", str(data), "--http-port", str(http_port), "--metrics-port", str(metrics_port)],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        try:
            self.url, self.metrics_url = self._ready()
        except PlatformFailed:
            self._process.kill()
            self._gone()
            raise

    def command(self, *arguments: str | Path) -> Any:
        """Run ``despina …`` against this platform and return what it prints as JSON. Raises PlatformFailed."""
        words = [str(argument) for argument in arguments]
        done = subprocess.run(
            [COMMAND, *words, "--json"],
            env={**os.environ, "DESPINA_URL": self.url},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        if done.returncode:
            said = f"{done.stderr.strip()} {done.stdout.strip()}".strip()
            raise PlatformFailed(f"despina {' '.join(words)}: exit code {done.returncode}: {said}\n{self.last_words()}")
        return json.loads(done.stdout)

    def stop(self) -> int:
        """Ask it to drain and wait until it is gone; its exit code. Raises PlatformFailed when it does not go."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._gone()
        except subprocess.TimeoutExpired:
            raise PlatformFailed(f"despina up is still there {STOP_S:.0f} s after SIGTERM\n{self.last_words()}") from None

    def last_words(self, lines: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _ready(self) -> tuple[str, str]:
        stdout = self._process.stdout
        assert stdout is not None
        os.set_blocking(stdout.fileno(), False)
        deadline, said = time.monotonic() + START_S, b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0 and selector.select(left):
                chunk = os.read(stdout.fileno(), 65536)
                if not chunk:
                    raise PlatformFailed(f"despina up ended with exit code {self._gone()}\n{self.last_words()}")
                said += chunk
                if match := READY.search(said.decode(errors="replace")):
                    return match[1], f"{match[2].removesuffix('/metrics')}/metrics"
        raise PlatformFailed(f"despina up was not ready within {START_S:.0f} s\n{self.last_words()}")

    def _gone(self) -> int:
        """Wait for its end and close what we held of it. Raises subprocess.TimeoutExpired."""
        code = self._process.wait(STOP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


def adopt_orphans() -> None:
    """From now on processes whose parents have died become children of this one, so that :func:`survivors` misses none."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def survivors() -> list[str]:
    """The command lines of all living processes below this one: after the platform has stopped, what it has left behind."""
    return [command_line(pid) for pid in descendants(os.getpid())]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [open_socket.getsockname()[1] for open_socket in sockets]
    for open_socket in sockets:
        open_socket.close()
    return ports


def descendants(root: int) -> list[int]:
    """The living processes below ``root``, zombies left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def command_line(pid: int) -> str:
    """What a process was started as."""
    try:
        return f"{pid} {(Path('/proc') / str(pid) / 'cmdline').read_text().replace(chr(0), ' ').strip()}"
    except (FileNotFoundError, ProcessLookupError):
        return f"{pid} (just ended)"
