"""Keeps versions warm while they have calls, and looks at each pool a few times a second: leases, samples, pools nobody needs any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from functions.errors import DespinaError, NodeUnreachable
from functions.names import Ref
from workers.fleet.events import Event
from workers.fleet.observation import Observation
from workers.fleet.pools import Pool
from workers.fleet.terms import Terms

log = logging.getLogger(__name__)

_TERMS = Terms()


class Fleet(Protocol):
    """What a router needs of the nodes."""

    @property
    def connected(self) -> int:
        """How many nodes answer."""

    def want(self, ref: Ref, count: int, ttl_s: float) -> None: ...

    def subscribe(self, on_event: Callable[[Event], None]) -> Callable[[], None]:
        """Events from now on, and first one for everything known already. Returns what ends it."""


class Warmth:
    """A lease of one replica for every version with calls, renewed while they are queued or running and for ``idle_s`` after the last."""

    def __init__(
        self,
        pools: dict[Ref, Pool],
        nodes: Fleet,
        terms: Callable[[Ref], Terms],
        fail_waiting: Callable[[Pool, DespinaError], None],
        *,
        lease_s: float,
        node_wait_s: float,
        tick_s: float,
    ) -> None:
        self._pools = pools
        self._nodes = nodes
        self._terms = terms
        self._fail_waiting = fail_waiting
        self._lease_s = lease_s
        self._node_wait_s = node_wait_s
        self._tick_s = tick_s
        self._loop = asyncio.get_running_loop()
        self._alone_since: float | None = None
        self._timer = self._loop.call_later(tick_s, self._tick)

    def hold(self, pool: Pool, now: float) -> None:
        """Ask for a replica at once."""
        pool.held = True
        pool.renew_at = now + self._lease_s / 3
        self._nodes.want(pool.ref, 1, self._lease_s)

    def observations(self) -> dict[Ref, Observation]:
        """One for each version that had a call; the samples start anew."""
        now = self._loop.time()
        return {ref: _observe(pool, now) for ref, pool in self._pools.items() if pool.calls}

    def close(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(self._tick_s, self._tick)
        alone = self._alone(now)
        for pool in list(self._pools.values()):
            if alone and pool.waiting and not pool.links:
                self._fail_waiting(
                    pool, NodeUnreachable(f"{pool.ref} has no replica, and no node has answered for {self._node_wait_s:g} s")
                )
            self._look(pool, now)

    def _look(self, pool: Pool, now: float) -> None:
        load = pool.waiting + pool.running()
        pool.sampled += load
        pool.samples += 1
        if load:
            pool.used = now
        barred = pool.barred is not None and not pool.links
        if load or now - pool.used < (pool.terms or _TERMS).idle_s:
            if not barred and now >= pool.renew_at:
                self._renew(pool, now)
        elif pool.held:
            pool.held = False
            self._nodes.want(pool.ref, 0, 0.0)
        elif not pool.replicas and not (barred and now < pool.barred_until):
            del self._pools[pool.ref]

    def _renew(self, pool: Pool, now: float) -> None:
        try:
            pool.terms = self._terms(pool.ref)  # an operator may have changed idle_s
        except DespinaError as error:
            log.warning("terms_unreadable version=%s error=%s", pool.ref, error)
        self.hold(pool, now)

    def _alone(self, now: float) -> bool:
        if self._nodes.connected:
            self._alone_since = None
            return False
        if self._alone_since is None:
            self._alone_since = now
        return now - self._alone_since >= self._node_wait_s


def _observe(pool: Pool, now: float) -> Observation:
    running = pool.running()
    load = pool.sampled / pool.samples if pool.samples else float(pool.waiting + running)
    pool.sampled, pool.samples = 0.0, 0
    return Observation(load, pool.waiting, running, pool.calls, 0.0 if pool.waiting or running else max(0.0, now - pool.used))
