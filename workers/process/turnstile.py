"""Results of several threads, let out in the order in which their work was given out."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Turnstile:
    """Numbers begin at 0, and each is used once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._held: dict[int, Callable[[], None]] = {}

    def leave(self, number: int, let_out: Callable[[], None]) -> None:
        """Call ``let_out`` as soon as every smaller number has left: now, or from the thread that brings the missing one."""
        with self._lock:
            self._held[number] = let_out
            while (ready := self._held.pop(self._next, None)) is not None:
                ready()
                self._next += 1
