"""The main thread of a ready replica: turn after turn, until it is told to drain.

A turn is: write what is done, wait for sockets, read what is there; then decode, cut, run. While a batch runs nothing is read, and what
arrives meanwhile becomes the next batch: a busy replica batches by itself.
"""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from workers.process.door import Door
from workers.process.scheduler import Scheduler

FLUSH_S = 5.0
"""How long a draining replica waits for routers to read their last answers."""


class Loop:
    """SIGTERM ends it, orderly."""

    def __init__(self, door: Door, scheduler: Scheduler) -> None:
        self._door, self._scheduler = door, scheduler
        self._draining = False

    def obey_signals(self) -> None:
        """SIGTERM drains. SIGINT is the terminal's, and for the parent alone. Main thread only."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._door.waker, warn_on_full_buffer=False)
        os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_disobey)

    def run(self) -> None:
        """Serve until SIGTERM; then say GOODBYE, give back what was not started, finish what was, and return when all is written."""
        door, scheduler = self._door, self._scheduler
        timeout_s: float | None = None
        while not self._draining:
            door.turn(timeout_s)
            timeout_s = scheduler.step()
        door.goodbye()
        self._finish()
        deadline = time.monotonic() + FLUSH_S
        while not door.settled and time.monotonic() < deadline:
            door.turn(0.1)
            scheduler.return_all()

    def _finish(self) -> None:
        scheduler = self._scheduler
        scheduler.return_all()
        while scheduler.running:
            self._door.turn(None)
            scheduler.return_all()
            scheduler.collect()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._draining = True


def _hold() -> None:
    """A SIGTERM that reaches a child before it has its own way with signals must wait until then: our handler would swallow it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _disobey() -> None:
    """A child that the author's code forks ends on SIGTERM like any other: its pool could not be stopped otherwise."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _release()
