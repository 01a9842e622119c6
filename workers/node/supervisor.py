"""Holds as many replicas of each version as its clients want: fetches, starts, watches, restarts, drains.

A client's ``want`` is a lease; the largest living one counts. Everything here runs on the node's loop: what blocks (the store,
the disk, the process table) goes to threads and comes back. Decisions are in ``Hosted``; what happens to one child is in
``Replica``; this class wires them and keeps the promise that nothing a replica held outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shutil
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from functions.errors import DespinaError, InternalError, NoCapacity, from_wire
from functions.names import Ref
from workers.node import birth as births
from workers.node import census
from workers.node.capacity import Capacity, Claim
from workers.node.hosted import Hosted
from workers.node.leases import Leases
from workers.node.messages import ReplicaEvent, State, VersionEvent
from workers.node.output import Outputs
from workers.node.pages import Pages
from workers.node.plan import Plan
from workers.node.replica import Replica
from workers.node.rooms import Rooms
from workers.node.zygotes import Zygotes

log = logging.getLogger(__name__)

TICK_S = 0.25
_LOADING_S = 10.0
"""After so long a start no longer keeps the next one waiting."""
_OUTPUT_LINES = 50
_TRIM_EVERY = 40
Event = ReplicaEvent | VersionEvent


class Supervisor:
    """Owned by the node's loop. ``on_event`` hears every change of a replica's state and of a version's; ``run`` ticks until closed."""

    def __init__(
        self,
        plan: Callable[[Ref], Plan],
        zygotes: Zygotes,
        rooms: Rooms,
        pages: Pages,
        outputs: Outputs,
        capacity: Capacity,
        *,
        starts: int,
        drain_s: float,
        on_event: Callable[[Event], None],
    ) -> None:
        self._plan = plan
        self._zygotes = zygotes
        self._rooms = rooms
        self._pages = pages
        self._outputs = outputs
        self._capacity = capacity
        self._starting = asyncio.Semaphore(starts)
        self._drain_s = drain_s
        self._on_event = on_event
        self._leases = Leases()
        self._hosted: dict[Ref, Hosted] = {}
        self._replicas: dict[str, tuple[Replica, Claim]] = {}
        self._epoch = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._emptied = asyncio.Event()
        self.in_use: frozenset[Ref] = frozenset()
        """Every version whose files a replica uses. Replaced, never changed: other threads read it."""

    # -- what clients ask ---------------------------------------------------------------------------------------------

    def want(self, client: str, ref: Ref, count: int, ttl_s: float) -> int:
        """Hold at least ``count`` replicas for ``ttl_s`` seconds; 0 gives the client's lease up. How many are held or on their way.

        Raises why the version cannot start, if that is known, and NoCapacity where this node cannot hold as many; the lease
        counts all the same, and is met as far and as soon as it can be."""
        now = self._loop.time()
        self._leases.put(client, ref, count, now + ttl_s)
        if count and ref not in self._hosted:
            self._hosted[ref] = Hosted(ref)
        hosted = self._hosted.get(ref)
        if hosted is None:
            return 0
        self._reconcile(hosted, now)
        if count and hosted.failure is not None:
            raise from_wire(hosted.failure.wire, hosted.failure.message)
        if count and hosted.refusal is not None:
            raise hosted.refusal
        return len({number for number, _ in hosted.lanes})

    def reset(self, ref: Ref) -> None:
        """Forget that the version failed, and try again if it is wanted."""
        hosted = self._hosted.get(ref)
        if hosted is not None:
            self._publish(hosted.forgive())
            self._reconcile(hosted, self._loop.time())

    def replicas(self, name: str | None = None) -> list[ReplicaEvent]:
        """Every lane that is not gone, of one function or of all."""
        return [replica.event(busy=True) for replica, _ in self._replicas.values() if name in (None, replica.plan.ref.name)]

    def events(self) -> list[Event]:
        """What a new watcher must hear: one event for each replica and each failed version."""
        failures = [hosted.failure for hosted in self._hosted.values() if hosted.failure is not None]
        return [*(replica.event() for replica, _ in self._replicas.values()), *failures]

    def exited(self, id: str, status: int) -> None:
        """A zygote saw a replica end."""
        known = self._replicas.get(id)
        if known is not None:
            known[0].exited(status)

    # -- the course of time -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look after leases, batches that run too long, and outputs that grow, until cancelled."""
        ticks = 0
        while True:
            await asyncio.sleep(TICK_S)
            ticks += 1
            self.tick()
            if ticks % _TRIM_EVERY == 0:
                for replica, _ in self._replicas.values():
                    self._outputs.trim(str(replica.plan.ref), replica.id)

    def tick(self) -> None:
        now, now_ns = self._loop.time(), time.monotonic_ns()
        for replica, _ in list(self._replicas.values()):
            replica.check(now_ns)
        for hosted in list(self._hosted.values()):
            self._reconcile(hosted, now)

    async def close(self) -> None:
        """Drain everything; when this returns no replica is left. What does not end within ``drain_s`` is killed."""
        self._closing = True
        log.info("supervisor_draining replicas=%d", len(self._replicas))
        self.tick()
        while self._replicas or self._tasks:
            self._emptied.clear()
            await self._emptied.wait()
        log.info("supervisor_drained")

    # -- one version --------------------------------------------------------------------------------------------------

    def _reconcile(self, hosted: Hosted, now: float) -> None:
        """Move one version towards what is wanted of it now."""
        wanted = 0 if self._closing else self._leases.wanted(hosted.ref, now)
        for replica in hosted.surplus(wanted):
            self._leave(hosted, replica)
        if not wanted:
            hosted.refusal = None
            if hosted.idle and (hosted.failure is None or now >= hosted.not_before):
                self._publish(hosted.forgive())
                del self._hosted[hosted.ref]
            return
        if now < hosted.not_before:
            return
        if hosted.failure is not None:
            self._publish(hosted.forgive())
        if hosted.plan is None:
            if not hosted.planning:
                hosted.planning = True
                self._spawn(self._fetch(hosted), f"fetch {hosted.ref}")
            return
        self._fill(hosted, hosted.plan, wanted)

    def _fill(self, hosted: Hosted, plan: Plan, wanted: int) -> None:
        hosted.refusal = None
        for number, lane in hosted.missing(wanted):
            try:
                claim = self._capacity.claim(f"{plan.ref} (lane {lane})", plan.memory_bytes)
            except NoCapacity as error:
                if hosted.refusal is None:
                    log.warning("no_capacity version=%s wanted=%d reason=%s", plan.ref, wanted, error)
                hosted.refusal = error
                return
            self._begin(hosted, plan, number, lane, claim)

    async def _fetch(self, hosted: Hosted) -> None:
        began = time.monotonic()
        try:
            plan = await asyncio.to_thread(self._plan, hosted.ref)
        except Exception as error:
            if not isinstance(error, DespinaError):
                log.exception("plan_broken version=%s", hosted.ref)
                error = InternalError(f"{hosted.ref} could not be prepared: {type(error).__name__}: {error}")
            hosted.planning = False
            self._fail(hosted, hosted.failed(error, self._loop.time()))
            return
        hosted.plan, hosted.planning, hosted.fetched_s = plan, False, time.monotonic() - began
        self.in_use |= {member.ref for member in plan.members}
        self._reconcile(hosted, self._loop.time())

    def _begin(self, hosted: Hosted, plan: Plan, number: int, lane: int, claim: Claim) -> None:
        self._epoch += 1
        # Unique on the machine, whatever other nodes run on it; short enough for a mark.
        id = f"{plan.ref.name[:60]}-{plan.ref.version}-{secrets.token_hex(4)}"
        place = self._rooms.place(id, self._epoch, self._pages.path(id))
        replica = Replica(id, plan, number, lane, self._epoch, place, lambda replica: self._changed(hosted, replica))
        hosted.lanes[number, lane] = replica
        self._replicas[id] = replica, claim
        self._announce(replica)
        self._spawn(self._start(hosted, replica), f"start {id}")

    async def _start(self, hosted: Hosted, replica: Replica) -> None:
        begun = time.monotonic()
        async with self._starting:
            if replica.state is not State.STARTING:
                replica.abandon()
                return
            replica.phases["placed"] = time.monotonic() - begun
            replica.phases["fetched"], hosted.fetched_s = hosted.fetched_s, 0.0
            try:
                with self._outputs.open(str(replica.plan.ref), replica.id) as output:
                    await replica.start(self._zygotes, output.fileno())
            except OSError as error:
                replica.abandon(InternalError(f"replica {replica.id} has no file for its output: {error}"))
            # Loading is what takes the cores: the next one starts when this one is ready or gone, or clearly waits for something.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOADING_S):
                    await replica.settled.wait()

    def _leave(self, hosted: Hosted, replica: Replica) -> None:
        hosted.forget(replica)
        hosted.leaving.add(replica)
        replica.drain(self._drain_s if self._closing else max(self._drain_s, replica.plan.kill_s))

    # -- what happens to one replica ----------------------------------------------------------------------------------

    def _changed(self, hosted: Hosted, replica: Replica) -> None:
        self._announce(replica)
        if replica.state is State.READY:
            hosted.ready()
        elif replica.gone:
            self._gone(hosted, replica)

    def _gone(self, hosted: Hosted, replica: Replica) -> None:
        _, claim = self._replicas.pop(replica.id)
        claim.release()
        self._pages.fold(replica.id)
        self._spawn(asyncio.to_thread(_clean, replica.id, self._rooms.work(replica.id)), f"clean {replica.id}")
        if hosted.forget(replica) and replica.error is not None:
            now = self._loop.time()
            output = "\n".join(self._outputs.tail(str(hosted.ref), _OUTPUT_LINES, replica.id))
            self._outputs.note(str(hosted.ref), replica.id, replica.error.message)
            failure = hosted.died(replica, now, output)
            hosted.plan = None  # its files are looked at again before the next start
            if failure is not None:
                self._fail(hosted, failure)
            self._loop.call_later(max(0.0, hosted.not_before - now), self._reconsider, hosted)
        self.in_use = frozenset(member.ref for other, _ in self._replicas.values() for member in other.plan.members)

    def _reconsider(self, hosted: Hosted) -> None:
        if self._hosted.get(hosted.ref) is hosted:
            self._reconcile(hosted, self._loop.time())

    def _fail(self, hosted: Hosted, failure: VersionEvent) -> None:
        log.error("version_failed version=%s retry_after_s=%.1f reason=%s", hosted.ref, failure.retry_after_s, failure.message)
        self._publish(failure)

    def _announce(self, replica: Replica) -> None:
        event = replica.event()
        level = logging.WARNING if event.state is State.FAILED else logging.INFO
        log.log(
            level, "replica_%s replica=%s version=%s pid=%d reason=%s", event.state, event.id, event.ref, event.pid, event.message or "-"
        )
        self._publish(event)

    def _publish(self, event: Event | None) -> None:
        if event is not None:
            self._on_event(event)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._emptied.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task_broken task=%s", task.get_name(), exc_info=error)


def _clean(replica: str, work: Path) -> None:
    """Kill what a dead replica left running, and remove what it left lying."""
    survivors = census.exterminate(births.mark(replica))
    if survivors:
        log.error("survivors replica=%s pids=%s", replica, sorted(survivors))
    shutil.rmtree(work, ignore_errors=True)
