"""Who may touch the sockets: one thread at a time, for one turn; the others wait for its end, or for what they really wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Lead:
    """A lock whose waiters are all woken whenever it is given back, so that each sees whether its own wish has come true.

    (A plain lock would do for one waiter. With two, the one that led last could take the lead again before the other has seen
    that its answer arrived in the meantime.) Taking it without anybody waiting costs one lock operation."""

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._waiting = 0
        self._given = threading.Condition(threading.Lock())
        """Guards ``_waiting``, and tells them that the lead was given back."""

    def try_take(self) -> bool:
        return self._held.acquire(False)

    def take(self, timeout_s: float | None = None, done: Callable[[], bool] = lambda: False) -> bool:
        """True: the caller leads. False: ``done`` came true, or the time is over."""
        if self._held.acquire(False):
            return True
        with self._given:
            # Counted first, tried again after: one who did not see the count has given the lead back before.
            self._waiting += 1
            try:
                while not done():
                    if self._held.acquire(False):
                        return True
                    if not self._given.wait(timeout_s):
                        return False
                return False
            finally:
                self._waiting -= 1

    def give(self) -> None:
        self._held.release()
        if self._waiting:
            with self._given:
                self._given.notify_all()
