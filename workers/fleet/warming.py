"""Makes a version ready to take over from another before a tag moves."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

from functions.names import Ref

log = logging.getLogger(__name__)

AFTER_S = 60.0
"""How long winner and loser are kept after the move: until the router and the autoscaler hold what the winner needs, and so that
going back is one write."""


class Fleet(Protocol):
    """What is needed of the nodes."""

    def ready(self, ref: Ref) -> int: ...

    def failed(self, ref: Ref) -> bool: ...

    async def reset(self, ref: Ref) -> None: ...

    def want(self, ref: Ref, count: int, ttl_s: float, holder: str) -> None: ...

    async def wait_ready(self, ref: Ref, count: int, wait_s: float, least: int) -> None: ...


async def warm(fleet: Fleet, winner: Ref, losers: Collection[Ref], wait_s: float, release: str) -> None:
    """Return when ``winner`` has as many replicas ready as the losers have together now, or as many as there is room for, and at least one.

    Raises StartFailed with what it wrote when it cannot start, NoCapacity or DeadlineExceeded when not even one is ready after
    ``wait_s``. A winner that had failed before is tried again.
    """
    count = max(1, sum(fleet.ready(loser) for loser in losers))
    if fleet.failed(winner):
        await fleet.reset(winner)
    fleet.want(winner, count, wait_s + AFTER_S, _holder(release))
    for loser in losers:
        keep(fleet, loser, wait_s + AFTER_S, release)
    try:
        await fleet.wait_ready(winner, count, wait_s, least=1)
    except BaseException:
        fleet.want(winner, 0, 0.0, _holder(release))
        raise
    log.info("warm version=%s ready=%d wanted=%d release=%s", winner, fleet.ready(winner), count, release)


def keep(fleet: Fleet, ref: Ref, seconds: float, release: str) -> None:
    """Hold what is ready for so long."""
    ready = fleet.ready(ref)
    if ready:
        fleet.want(ref, ready, seconds, _holder(release))


def _holder(release: str) -> str:
    return f"release {release}"
