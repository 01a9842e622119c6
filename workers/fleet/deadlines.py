"""Deadlines of many calls with one timer: calls stand in coarse buckets, and the timer is set for the first of them.

A call never expires early, and at most one bucket width late: 20 ms when less than 5 s are left at the start, else 0.5 s. So 50,000
calls a second with 300 s each make some 600 buckets, and a call costs one dictionary look-up and one set insertion, not a timer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from workers.fleet.call import Call

FINE_S = 0.02
COARSE_S = 0.5
COARSE_FROM_S = 5.0


class Deadlines:
    """Calls ``on_due(call)`` for each call that is still here at its deadline. One loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_due: Callable[[Call], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._buckets: dict[float, set[Call]] = {}
        self._times: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def add(self, call: Call, now: float) -> None:
        deadline = call.deadline
        width = FINE_S if deadline - now < COARSE_FROM_S else COARSE_S
        due = (deadline // width + 1.0) * width
        bucket = self._buckets.get(due)
        if bucket is None:
            bucket = self._open(due)
        bucket.add(call)
        call.bucket = bucket

    def remove(self, call: Call) -> None:
        """Does nothing for a call that is not here."""
        if call.bucket is not None:
            call.bucket.discard(call)
            call.bucket = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _open(self, due: float) -> set[Call]:
        bucket: set[Call] = set()
        self._buckets[due] = bucket
        heapq.heappush(self._times, due)
        if due < self._timer_at:
            self._arm(due)
        return bucket

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._loop.time()
        # A bucket whose calls were all answered costs nothing but its place in the heap until here.
        while self._times and (self._times[0] <= now or not self._buckets[self._times[0]]):
            due = self._buckets.pop(heapq.heappop(self._times))
            while due:  # a callback may take others out of the same bucket
                call = due.pop()
                call.bucket = None
                self._on_due(call)
        if self._times:
            self._arm(self._times[0])
