"""What this machine has and how much of it is in use, read from /proc and the cgroup."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """In bytes. ``used`` is what is not available to a new process."""

    total: int
    used: int


def cores() -> int:
    """The cores this process may run on."""
    return len(os.sched_getaffinity(0))


def memory(meminfo: str | None = None) -> Memory:
    """The machine's memory. ``meminfo`` is the text of /proc/meminfo, by default as of now."""
    text = Path("/proc/meminfo").read_text() if meminfo is None else meminfo
    fields = {line.partition(":")[0]: line.split()[1] for line in text.splitlines() if ":" in line}
    total = int(fields["MemTotal"]) * 1024
    return Memory(total, total - int(fields["MemAvailable"]) * 1024)


def memory_limit() -> int:
    """The bytes this process and its children may use: the container's limit where there is one, else the machine's memory."""
    total = memory().total
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(text)) if text.isdigit() else total


class Load:
    """The share of all cores in use, 0 to 1, since the last time it was asked."""

    def __init__(self, read: Callable[[], str] = lambda: Path("/proc/stat").read_text()) -> None:
        self._read = read
        self._last = self._times()
        self._share = 0.0

    def share(self) -> float:
        """Two questions within one clock tick (10 ms) get the same answer."""
        busy, whole = self._times()
        last_busy, last_whole = self._last
        if whole > last_whole:
            self._share = min(1.0, max(0.0, (busy - last_busy) / (whole - last_whole)))
            self._last = busy, whole
        return self._share

    def _times(self) -> tuple[int, int]:
        # user nice system idle iowait irq softirq steal; guest times are in user's already
        times = [int(field) for field in self._read().partition("\n")[0].split()[1:9]]
        return sum(times) - times[3] - times[4], sum(times)
