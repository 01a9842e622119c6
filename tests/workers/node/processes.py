"""Waiting for real processes: an event or a state, never a nap of a guessed length."""

from __future__ import annotations

import time
from collections.abc import Callable


def alive(pid: int) -> bool:
    """Whether ``pid`` runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] not in (b"Z", b"X")


def eventually(condition: Callable[[], bool], what: str, deadline_s: float = 15.0) -> None:
    """Return as soon as ``condition()`` holds; fail with ``what`` after the deadline."""
    until = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < until, f"after {deadline_s} s still not: {what}"
        time.sleep(0.01)
