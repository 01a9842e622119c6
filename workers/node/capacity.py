"""What this machine has to give to replicas. A claim is an object that must be given back; one that is lost is our bug."""

from __future__ import annotations

import logging

from functions.errors import NoCapacity

log = logging.getLogger(__name__)


class Capacity:
    """Processes and memory that replicas may hold together. One owner, one thread.

    Cores are not divided: a replica that runs nothing uses none, and a machine keeps more versions warm than it has cores.
    The process limit keeps the table of processes, and the time that idle ones cost, in bounds.
    """

    def __init__(self, processes: int, memory_bytes: int) -> None:
        self.processes, self.memory_bytes = processes, memory_bytes
        self.free_processes, self.free_bytes = processes, memory_bytes

    def claim(self, what: str, memory_bytes: int) -> Claim:
        """Room for one process of about that much memory. Raises NoCapacity with what is lacking."""
        if self.free_processes < 1:
            raise NoCapacity(f"no room for {what}: all {self.processes} replica processes of this node are in use")
        if self.free_bytes < memory_bytes:
            free = f"{_mib(self.free_bytes)} of this node's {_mib(self.memory_bytes)} MiB are free"
            raise NoCapacity(f"no room for {what}: it needs about {_mib(memory_bytes)} MiB, {free}")
        self.free_processes -= 1
        self.free_bytes -= memory_bytes
        return Claim(self, what, memory_bytes)


class Claim:
    """One process's share, until it is released."""

    __slots__ = ("_capacity", "_memory_bytes", "_released", "what")

    def __init__(self, capacity: Capacity, what: str, memory_bytes: int) -> None:
        self._capacity, self.what, self._memory_bytes = capacity, what, memory_bytes
        self._released = False

    def release(self) -> None:
        """Give it back. A second time does nothing."""
        if not self._released:
            self._released = True
            self._capacity.free_processes += 1
            self._capacity.free_bytes += self._memory_bytes

    def __del__(self) -> None:
        if not self._released:
            log.error("capacity_lost what=%s", self.what)
            self.release()


def _mib(size_bytes: int) -> int:
    return size_bytes >> 20
