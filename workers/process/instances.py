"""The instances of one member in this process: each runs one batch at a time, any free one takes the next."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from functions.errors import DeadlineExceeded
from workers.backends.base import Backend


class Instance:
    """One backend, and the thread that runs a batch on it (0: none)."""

    __slots__ = ("backend", "depth", "holder")

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.holder = 0
        self.depth = 0


class Instances:
    """Capacity that is given back: each ``acquire`` is followed by one ``release``.

    A thread that already runs a batch on an instance gets the same one again: that is a function calling itself, which runs
    nested on the instance it called from."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.all = [Instance(backend) for backend in backends]
        self._free: queue.SimpleQueue[Instance] = queue.SimpleQueue()
        for instance in self.all:
            self._free.put(instance)

    def acquire(self, deadline: float | None) -> Instance:
        """A free instance, as soon as there is one. Raises DeadlineExceeded at ``deadline`` (time.monotonic())."""
        thread = threading.get_ident()
        for instance in self.all:
            if instance.holder == thread:
                instance.depth += 1
                return instance
        try:
            instance = self._free.get_nowait()
        except queue.Empty:
            instance = self._next(deadline)
        instance.holder = thread
        return instance

    def _next(self, deadline: float | None) -> Instance:
        """The one that is given back next."""
        try:
            return self._free.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise DeadlineExceeded("every instance was busy until the caller's deadline") from None

    def release(self, instance: Instance) -> None:
        if instance.depth:
            instance.depth -= 1
            return
        instance.holder = 0
        self._free.put(instance)

    def busy_elsewhere(self) -> bool:
        """Whether all are held by other threads than this one."""
        thread = threading.get_ident()
        return all(instance.holder not in (0, thread) for instance in self.all)

    def close(self) -> None:
        """Close every backend; nothing is running any more."""
        for instance in self.all:
            instance.backend.close()
