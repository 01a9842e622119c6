"""The one door to the replicas, and the queue before them. Callbacks on the loop of its process: no task, future or coroutine a call.

    submit → a link with credit? ── yes → sent ── REPLY, FAILURE → the caller
                 │ no                      │ RETURN, or lost before it started
                 ▼                         ▼
               queue ◄──────────── front of the queue
                 │ deadline, cancel, version failed
                 ▼
               the caller

A replica never holds more calls than the credit it announced. A call that was sent holds its credit until the replica answers or
dies, also when its caller has gone or its deadline has passed. A call stays on the version it was made for, whatever tags do
meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from functions.errors import (
    CapacityError,
    DeadlineExceeded,
    DespinaError,
    Draining,
    InternalError,
    InvalidRequest,
    QueueFull,
    RateLimited,
    ReplicaDied,
)
from functions.graph import MAX_DEPTH
from functions.names import Ref
from workers.fleet.call import Call
from workers.fleet.deadlines import Deadlines
from workers.fleet.events import Event, Refused, Vanished
from workers.fleet.lines import Lines
from workers.fleet.links import Link
from workers.fleet.observation import Observation
from workers.fleet.pools import Pool
from workers.fleet.terms import Terms
from workers.fleet.warmth import Fleet, Warmth
from workers.node.messages import ReplicaEvent, VersionEvent
from workers.process.page import Page

__all__ = ["Call", "Router", "RouterSettings"]

log = logging.getLogger(__name__)

MAX_CONTEXT = 0xFFFF
MAX_RETURNS = 8
"""A call that came back unstarted this often is failed: its replicas are broken in a way that only looks orderly."""
PENDING = "nv_inference_pending_request_count"


@dataclass(frozen=True, slots=True)
class RouterSettings:
    bytes_in_flight: int = 2 << 30
    """Most bytes of bodies that wait or lie with replicas."""
    timeout_s: float = 300.0
    """Longest deadline of a call that a replica makes to another function, in seconds."""
    lease_s: float = 15.0
    """Seconds a lease that keeps a version warm lives; renewed at a third of it."""
    node_wait_s: float = 10.0
    """Seconds that calls without a replica wait while no node answers at all."""
    tick_s: float = 0.25
    """Seconds between two looks at leases, samples and idle pools."""


class Router:
    """Made and used on one running loop. ``terms(ref)`` and ``resolve(caller, name)`` answer from memory, or raise what the caller is told;
    ``page`` gets the gauge of pending calls."""

    def __init__(
        self,
        nodes: Fleet,
        terms: Callable[[Ref], Terms],
        resolve: Callable[[Ref, str], Ref],
        page: Page | None = None,
        settings: RouterSettings | None = None,
    ) -> None:
        self._settings = settings or RouterSettings()
        self._terms = terms
        self._page = page
        self._time = asyncio.get_running_loop().time
        self._deadlines = Deadlines(asyncio.get_running_loop(), self._expired)
        self._pools: dict[Ref, Pool] = {}
        self._bytes = 0
        self._number = 0
        self._drained: asyncio.Event | None = None
        self._lines = Lines(self, resolve, self._settings.timeout_s)
        self._warmth = Warmth(
            self._pools,
            nodes,
            terms,
            self._fail_waiting,
            lease_s=self._settings.lease_s,
            node_wait_s=self._settings.node_wait_s,
            tick_s=self._settings.tick_s,
        )
        self._unsubscribe = nodes.subscribe(self.on_event)

    # -- what a door calls --------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Take a call. Exactly one of its callbacks follows, also for a refusal, and then perhaps before this returns.

        Fails with QueueFull, DeadlineExceeded, StartFailed, NodeUnreachable, Draining, InvalidRequest (too many hops), what
        ``terms`` or a node's refusal says, what the replica answers, ReplicaDied or AuthorHung.
        """
        now = self._time()
        pool = self._pools.get(call.ref) or self.pool(call.ref)
        link = None if pool.waiting else pool.pick()
        call.size = size = len(call.body)
        refusal = self._refusal(pool, call, link, now)
        if refusal is not None:
            _tell(call, refusal)
            return
        self._bytes += size
        self._number = call.number = self._number + 1
        call.pool = pool
        call.since = pool.used = now
        pool.calls += 1
        self._deadlines.add(call, now)
        if link is not None:
            link.send(call, now)
            return
        pool.put(call)
        self._count_pending(pool)
        if not pool.links and not pool.held:
            self._warmth.hold(pool, now)

    def cancel(self, call: Call) -> None:
        """The caller has gone: no callback follows. A waiting call leaves the queue, one with a replica is told to stop. Does
        nothing after the end."""
        if call.pool is not None:
            if call.link is not None:
                call.link.cancel(call.id)
            self._leave(call, call.pool)

    def backlog(self) -> dict[Ref, tuple[int, int]]:
        """Version → (queued, running) for every version that has either."""
        counts = {ref: (pool.waiting, pool.running()) for ref, pool in self._pools.items()}
        return {ref: count for ref, count in counts.items() if count != (0, 0)}

    def observations(self) -> dict[Ref, Observation]:
        """What happened since this was last asked, for the board: one entry a version that had calls."""
        return self._warmth.observations()

    @property
    def bytes_in_flight(self) -> int:
        return self._bytes

    async def close(self, grace_s: float) -> None:
        """Refuse new calls as Draining, let the present ones end for at most ``grace_s`` seconds, fail what is left, cut every link."""
        self._drained = asyncio.Event()
        self._check_drained()
        try:
            async with asyncio.timeout(grace_s):
                await self._drained.wait()
        except TimeoutError:
            log.warning("router_drain_cut calls=%s", {str(ref): counts for ref, counts in self.backlog().items()})
        self._unsubscribe()
        self._warmth.close()
        await self._lines.close()
        for pool in self._pools.values():
            self._fail_waiting(pool, Draining(f"{pool.ref}: this router is shutting down"))
        self._deadlines.close()

    # -- what the nodes say -------------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        if isinstance(event, ReplicaEvent):
            self._lines.on_replica(event)
        elif isinstance(event, VersionEvent):
            self._on_version(event)
        elif isinstance(event, Vanished):
            self._lines.on_vanished(event.id)
        else:
            self._on_refused(event)

    def _on_version(self, event: VersionEvent) -> None:
        pool = self.pool(event.ref)
        if not event.failed:
            pool.barred = None
            return
        pool.barred = event.error()
        pool.barred_until = self._time() + event.retry_after_s
        pool.held = False
        if not pool.links:
            self._fail_waiting(pool, pool.barred)

    def _on_refused(self, refused: Refused) -> None:
        pool = self._pools.get(refused.ref)
        if pool is None:
            return
        pool.trouble = refused.error
        # For lack of capacity a call waits until its deadline: somebody else's lease may end. Anything else does not mend by waiting.
        if not isinstance(refused.error, CapacityError) and not pool.links:
            self._fail_waiting(pool, refused.error)

    # -- what the links say -------------------------------------------------------------------------------------------

    def replied(self, call: Call, header_length: int, body: memoryview, flags: int) -> None:
        self._bytes -= call.size
        if call.pool is None:
            return
        self._deadlines.remove(call)
        call.pool = call.link = None
        try:
            call.on_reply(call, header_length, body, flags)
        except Exception:  # a door's bug must not close the link under everybody else's calls
            log.exception("door_callback_failed version=%s", call.ref)

    def failed(self, call: Call, error: DespinaError) -> None:
        self._bytes -= call.size
        if call.pool is not None:
            self._deadlines.remove(call)
            call.pool = call.link = None
            _tell(call, error)
        if self._drained is not None:
            self._check_drained()

    def returned(self, call: Call) -> None:
        """Back to the front of the queue; ``turned`` or ``pump`` hands it out again."""
        call.returns += 1
        if call.pool is None or call.returns > MAX_RETURNS:
            self.failed(call, ReplicaDied(f"{call.ref}: its replicas gave this call back {call.returns} times without starting it"))
            return
        call.link = None
        call.pool.put_back(call)
        self._count_pending(call.pool)

    def turned(self, link: Link) -> None:
        pool = link.peer.pool
        if pool.waiting:
            self.pump(pool)
        if self._drained is not None:
            self._check_drained()

    # -- the queue ----------------------------------------------------------------------------------------------------

    def pool(self, ref: Ref) -> Pool:
        """The pool of a version, made if new."""
        pool = self._pools.get(ref)
        if pool is None:
            pool = self._pools[ref] = Pool(ref)
            if self._page is not None:
                try:
                    pool.series = self._page.series(PENDING, {"model": ref.name, "version": str(ref.version)}, "gauge")
                except InternalError as error:  # a full page costs a gauge, not the calls
                    log.error("pending_gauge_missing version=%s error=%s", ref, error)
        return pool

    def pump(self, pool: Pool) -> None:
        """Hand out what waits, as far as credit allows; ask for a replica, or fail, where there is none."""
        now = self._time()
        while pool.waiting:
            link = pool.pick()
            if link is None:
                break
            link.send(pool.take(), now)
        self._count_pending(pool)
        if pool.waiting and not pool.links:
            if pool.barred is not None and now < pool.barred_until:
                self._fail_waiting(pool, pool.barred)
            elif not pool.held:
                self._warmth.hold(pool, now)

    def _refusal(self, pool: Pool, call: Call, link: Link | None, now: float) -> DespinaError | None:
        """Why the call is not taken; None if it is."""
        if self._drained is not None:
            return Draining(f"{call.ref}: this router is shutting down")
        if call.deadline <= now:
            return DeadlineExceeded(f"{call.ref}: its deadline had passed when it arrived")
        if self._bytes + call.size > self._settings.bytes_in_flight:
            return QueueFull(
                f"{call.ref}: {call.size} bytes and {self._bytes} in flight are over the limit, {self._settings.bytes_in_flight}; try again"
            )
        if call.hops > MAX_DEPTH or len(call.context) > MAX_CONTEXT:
            return InvalidRequest(
                f"{call.ref}: {call.hops} calls deep, {len(call.context)} bytes of context; the limits are {MAX_DEPTH} and {MAX_CONTEXT}"
            )
        if pool.terms is None:
            try:
                pool.terms = self._terms(pool.ref)
            except DespinaError as error:
                return error
        rate = pool.terms.rate
        if rate is not None and not pool.allowed(rate, now):
            return RateLimited(f"{call.ref}: more than {rate:g} calls a second (limits.rate); try again in a moment")
        return None if link is not None else self._queue_refusal(pool, pool.terms, now)

    def _queue_refusal(self, pool: Pool, terms: Terms, now: float) -> DespinaError | None:
        if pool.barred is not None and not pool.links:
            if now < pool.barred_until:
                pool.barred.retry_after_s = pool.barred_until - now
                return pool.barred
            pool.barred = None
        if pool.waiting >= terms.queue:
            return QueueFull(f"{pool.ref}: {pool.waiting} calls wait already, which is the limit (limits.queue); try again")
        return None

    def _fail_waiting(self, pool: Pool, error: DespinaError) -> None:
        # Callbacks may submit again; what they add is not failed here.
        for call in [pool.take() for _ in range(pool.waiting)]:
            self.failed(call, error)
        self._count_pending(pool)

    def _expired(self, call: Call) -> None:
        pool = call.pool
        if pool is None:
            return
        on_failure, waited_s = call.on_failure, self._time() - call.since
        if call.link is not None:
            error = DeadlineExceeded(f"{call.ref}: no answer within {waited_s:.3g} s")
        elif pool.links:
            error = DeadlineExceeded(f"{call.ref}: {waited_s:.3g} s in the queue, and no replica was free in time")
        else:
            trouble = f": {pool.trouble}" if pool.trouble is not None else ""
            error = DeadlineExceeded(f"{call.ref}: {waited_s:.3g} s in the queue, and no replica was ready in time{trouble}")
        self._leave(call, pool)
        _tell(call, error, on_failure)

    def _leave(self, call: Call, pool: Pool) -> None:
        """The caller waits no more: out of the queue; or, where a replica has it, its credit and bytes stay counted until the
        replica answers."""
        self._deadlines.remove(call)
        call.pool = None
        if call.link is None:
            pool.drop(call)
            self._bytes -= call.size
            self._count_pending(pool)
            if self._drained is not None:
                self._check_drained()
        else:
            call.abandon()

    def _count_pending(self, pool: Pool) -> None:
        if pool.series >= 0 and self._page is not None:
            self._page.values[pool.series] = pool.waiting

    def _check_drained(self) -> None:
        if self._drained is not None and not any(pool.waiting or pool.running() for pool in self._pools.values()):
            self._drained.set()


def _tell(call: Call, error: DespinaError, on_failure: Callable[[Call, DespinaError], None] | None = None) -> None:
    try:
        (on_failure or call.on_failure)(call, error)
    except Exception:  # a door's bug must not stop the queue of everybody else
        log.exception("door_callback_failed version=%s", call.ref)
