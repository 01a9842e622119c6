"""The loop around ``decide``: reads the board, decides for each version, and holds leases at the nodes for what was decided."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from functions.errors import DespinaError, NotFound
from functions.names import Ref
from workers.fleet.board import Sighting
from workers.fleet.decide import STABLE_S, Memory, Policy, decide
from workers.fleet.observation import total
from workers.fleet.window import Window

log = logging.getLogger(__name__)

LEASE_S = 15.0
"""How long a decision holds when this process dies; it is renewed every second."""
HOLDER = "autoscaler"


class Fleet(Protocol):
    """What is needed of the nodes."""

    def ready(self, ref: Ref) -> int: ...

    def want(self, ref: Ref, count: int, ttl_s: float, holder: str) -> None: ...


@dataclass(slots=True)
class _Scaled:
    window: Window = field(default_factory=Window)
    memory: Memory = field(default_factory=Memory)


class Autoscaler:
    """``policy(ref)`` raises NotFound for a version that is gone; ``floors()`` names the versions that are kept without calls (min > 0)."""

    def __init__(self, fleet: Fleet, policy: Callable[[Ref], Policy], floors: Callable[[], set[Ref]]) -> None:
        self._fleet = fleet
        self._policy = policy
        self._floors = floors
        self._scaled: dict[Ref, _Scaled] = {}

    def tick(self, sightings: Mapping[str, Sighting] | None, now: float) -> dict[Ref, int]:
        """Decide for every version once; what was decided. ``sightings`` is None while the board is lost, and empty while no router
        lives: both say nothing, so every count stays. While a router lives, a version that none of them mentions has no calls."""
        if sightings:
            self._see(sightings, now)
        for ref in self._floors():
            self._scaled.setdefault(ref, _Scaled())
        return {ref: self._decide(ref, scaled, bool(sightings), now) for ref, scaled in list(self._scaled.items())}

    def _see(self, sightings: Mapping[str, Sighting], now: float) -> None:
        for ref in {ref for sighting in sightings.values() for ref in sighting}:
            self._scaled.setdefault(ref, _Scaled())
        for ref, scaled in self._scaled.items():
            seen = total(sighting[ref] for sighting in sightings.values() if ref in sighting)
            load, idle_s = (seen.load, seen.idle_s) if seen is not None else (0.0, None)
            scaled.window = scaled.window.add(now, load, STABLE_S, idle_s)

    def _decide(self, ref: Ref, scaled: _Scaled, seen: bool, now: float) -> int:
        try:
            policy = self._policy(ref)
        except NotFound as error:
            log.info("version_gone version=%s reason=%s", ref, error)
            self._drop(ref, scaled)
            return 0
        except DespinaError as error:
            log.warning("policy_unreadable version=%s error=%s", ref, error)
            return self._hold(ref, scaled.memory.count, scaled.memory.count)
        # Missing observations are no observations of zero: what was held is held on, whatever has left the window meanwhile.
        window = scaled.window if seen else Window()
        decision = decide(policy, window, self._fleet.ready(ref), scaled.memory, now)
        if decision.count != scaled.memory.count:
            log.info("scaled version=%s from=%d to=%d reason=%s", ref, scaled.memory.count, decision.count, decision.reason)
        before, scaled.memory = scaled.memory.count, decision.memory
        if seen and not (decision.count or before) and not scaled.window.mean(now, STABLE_S):
            del self._scaled[ref]  # nobody asks for it; if it has a floor, the next tick brings it back
        return self._hold(ref, decision.count, before)

    def _hold(self, ref: Ref, count: int, before: int) -> int:
        if count or before:
            self._fleet.want(ref, count, LEASE_S, HOLDER)
        return count

    def _drop(self, ref: Ref, scaled: _Scaled) -> None:
        del self._scaled[ref]
        if scaled.memory.count:
            self._fleet.want(ref, 0, 0.0, HOLDER)
