"""What was seen lately of one version: samples of its load with their times. Immutable; time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Sample(NamedTuple):
    at: float
    """Seconds, on the clock of whoever decides."""
    load: float
    """Calls queued or running, all routers together."""


@dataclass(frozen=True, slots=True)
class Window:
    samples: tuple[Sample, ...] = ()
    active_at: float | None = None
    """When a call was last seen; None: never."""

    def add(self, at: float, load: float, keep_s: float, idle_s: float | None = None) -> Window:
        """With one more sample, and without those older than ``keep_s``. ``idle_s`` is how long ago the last call arrived; None
        where nobody knows."""
        active_at = self.active_at
        if idle_s is not None:
            active_at = at - idle_s if active_at is None else max(active_at, at - idle_s)
        return Window((*(sample for sample in self.samples if sample.at > at - keep_s), Sample(at, load)), active_at)

    def mean(self, now: float, over_s: float) -> float | None:
        """Mean load over the last ``over_s`` seconds; None when nothing was seen in them."""
        loads = [sample.load for sample in self.samples if now - over_s < sample.at <= now]
        return sum(loads) / len(loads) if loads else None
