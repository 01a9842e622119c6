"""What a router tells the autoscaler about one version: the only thing that scaling looks at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """The autoscaler decides by ``load`` and ``idle_s``; the rest is for who reads the board to see why."""

    load: float
    """Mean of queued + running calls since the observation before, from samples."""
    queued: int
    running: int
    calls: int
    """Calls since the router knows the version; only ever grows while it does."""
    idle_s: float
    """Seconds since the last call arrived; 0 while one is queued or running."""


def total(observations: Iterable[Observation]) -> Observation | None:
    """One version as all routers together see it; None of none."""
    seen = list(observations)
    if not seen:
        return None
    return Observation(
        load=sum(each.load for each in seen),
        queued=sum(each.queued for each in seen),
        running=sum(each.running for each in seen),
        calls=sum(each.calls for each in seen),
        idle_s=min(each.idle_s for each in seen),
    )
