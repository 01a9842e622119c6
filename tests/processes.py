"""Real processes seen from a test: which there are, and waiting for what only they can announce, never by a nap of a guessed length.

It reads /proc in its own way: what the product counts (``workers/node/census.py``) is what these tests check.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], what: str, deadline_s: float = 15.0) -> T:
    """The first answer of ``condition()`` that is true; fails with ``what`` after the deadline."""
    until = time.monotonic() + deadline_s
    while not (answer := condition()):
        assert time.monotonic() < until, f"after {deadline_s} s still not: {what}"
        time.sleep(0.01)
    return answer


def alive(pid: int) -> bool:
    """Whether ``pid`` runs; a zombie does not."""
    return _state(pid)[0] not in "ZX"


def descendants(root: int) -> set[int]:
    """``root`` and the processes below it, those that are alive."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        children.setdefault(_state(pid)[1], []).append(pid)
    found, queue = set(), [root]
    while queue:
        pid = queue.pop()
        found.add(pid)
        queue += children.get(pid, [])
    return {pid for pid in found if alive(pid)}


def mentioning(text: str) -> set[int]:
    """The living processes that have ``text`` in their arguments or environment, this one left out."""
    needle = text.encode()
    return {pid for pid in _pids() if pid != os.getpid() and needle in _read(pid, "cmdline") + _read(pid, "environ") and alive(pid)}


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _state(pid: int) -> tuple[str, int]:
    """State and parent; ``("X", 0)``, dead, where there is no such process."""
    words = _read(pid, "stat").rpartition(b")")[2].split()
    return (words[0].decode(), int(words[1])) if words else ("X", 0)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
