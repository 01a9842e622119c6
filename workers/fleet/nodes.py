"""All nodes of a fleet, seen from one process: leases spread over them, events of all of them, questions to all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from functions.errors import DeadlineExceeded, DespinaError, NoCapacity, NodeUnreachable
from functions.names import Ref
from workers.fleet.events import Event, Refused
from workers.fleet.leases import Leases
from workers.fleet.node_client import NodeAddress, NodeClient
from workers.fleet.placement import place
from workers.node.messages import ReplicaEvent
from workers.node.statistics import merged

FULL_S = 5.0
"""How long a node that refused for lack of capacity gets no more of the same version."""
TICK_S = 1.0


@dataclass(slots=True)
class _Share:
    """How a version's lease lies on the nodes."""

    counts: dict[str, int] = field(default_factory=dict)
    full: dict[str, float] = field(default_factory=dict)
    """Node address → until when it counts as full."""


class Nodes:
    """Owned by one loop. ``start`` connects, ``close`` ends it; leases given before a node answers are sent when it does."""

    def __init__(self, addresses: Iterable[NodeAddress]) -> None:
        self._clients = {node.address: self._client(node) for node in addresses}
        self._leases = Leases()
        self._shares: dict[Ref, _Share] = {}
        self._listeners: list[Callable[[Event], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(client.run(), name=f"node {address}") for address, client in self._clients.items()]
        self._tasks.append(loop.create_task(self._tick(), name="leases"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def connected(self) -> int:
        """How many nodes answer."""
        return sum(client.connected for client in self._clients.values())

    @property
    def cores(self) -> int:
        """Of all nodes that have ever answered."""
        return sum(client.info.cores for client in self._clients.values() if client.info is not None)

    async def wait_connected(self, wait_s: float) -> None:
        """Until one node answers. Raises NodeUnreachable."""
        if not await self._until(lambda: self.connected > 0, asyncio.get_running_loop().time() + wait_s):
            raise NodeUnreachable(f"no node of {', '.join(self._clients)} has answered within {wait_s:g} s")

    # -- events -------------------------------------------------------------------------------------------------------

    def subscribe(self, on_event: Callable[[Event], None]) -> Callable[[], None]:
        """Events from now on, and first one for everything known already. Returns what ends it."""
        for client in self._clients.values():
            known: list[Event] = [*client.replicas.values(), *client.failures.values()]
            for event in known:
                on_event(event)
        self._listeners.append(on_event)
        return lambda: self._listeners.remove(on_event)

    def _client(self, node: NodeAddress) -> NodeClient:
        return NodeClient(node, lambda event: self._on_event(node.address, event), self._on_connected)

    def _on_event(self, address: str, event: Event) -> None:
        self._changed.set()
        if isinstance(event, Refused) and isinstance(event.error, NoCapacity) and self._spill(address, event.ref):
            return
        for listener in list(self._listeners):
            listener(event)

    def _on_connected(self, _client: NodeClient) -> None:
        self._changed.set()
        now = asyncio.get_running_loop().time()
        for ref, count, ttl_s in self._leases.living(now):
            self._tell(ref, count, ttl_s, now)

    # -- leases -------------------------------------------------------------------------------------------------------

    def want(self, ref: Ref, count: int, ttl_s: float, holder: str = "router") -> None:
        """Hold at least ``count`` replicas for ``ttl_s`` seconds, over all nodes; never waits. One lease a holder and version, the
        largest counts; 0 gives it up. A refusal comes as the event Refused, once no node can take it."""
        now = asyncio.get_running_loop().time()
        self._leases.put(ref, holder, count, now + ttl_s)
        self._tell(ref, *self._leases.told(ref, now), now)

    def _tell(self, ref: Ref, count: int, ttl_s: float, now: float) -> None:
        share = self._shares.setdefault(ref, _Share())
        share.full = {address: until for address, until in share.full.items() if until > now}
        answering = [address for address, client in self._clients.items() if client.connected]
        for address, part in place(ref, count, answering, share.full).items():
            if part or share.counts.get(address):
                self._clients[address].want(ref, part, ttl_s)
            share.counts[address] = part
        if not count:
            del self._shares[ref]

    def _spill(self, address: str, ref: Ref) -> bool:
        """Offer another node what this one refused for lack of capacity. False when all have refused."""
        share = self._shares.get(ref)
        if share is None:
            return True  # given up meanwhile
        now = asyncio.get_running_loop().time()
        share.full[address] = now + FULL_S
        if all(other in share.full or not client.connected for other, client in self._clients.items()):
            return False
        self._tell(ref, *self._leases.told(ref, now), now)
        return True

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = asyncio.get_running_loop().time()
            for ref in self._leases.ended(now):
                self._tell(ref, *self._leases.told(ref, now), now)

    # -- what is known ------------------------------------------------------------------------------------------------

    def replicas(self, name: str | None = None) -> list[ReplicaEvent]:
        """Every lane of every living replica, as last reported."""
        return [event for client in self._clients.values() for event in client.replicas.values() if name is None or event.name == name]

    def ready(self, ref: Ref) -> int:
        """Whole replicas that take calls: a replica of several lanes counts when all its lanes are ready."""
        lanes = [event for event in self.replicas(ref.name) if event.ref == ref and event.state.serving]
        return len(lanes) // max(1, max((event.lanes for event in lanes), default=1))

    def failure(self, ref: Ref) -> DespinaError | None:
        """Why the version cannot start, if a node has said so and none has it ready."""
        for client in self._clients.values():
            event = client.failures.get(ref)
            if event is not None and not self.ready(ref):
                return event.error()
        return None

    def failed(self, ref: Ref) -> bool:
        """Whether a node says that the version cannot start."""
        return any(ref in client.failures for client in self._clients.values())

    async def wait_ready(self, ref: Ref, count: int, wait_s: float, least: int) -> None:
        """Until ``count`` replicas are ready; or ``least`` of them, when a node refuses more for lack of capacity or ``wait_s`` is over.

        Raises what a node says (StartFailed …) as soon as it does; after ``wait_s`` NoCapacity where a node refused for that, else
        DeadlineExceeded with how far it has come."""
        refusals: list[DespinaError] = []

        def on_event(event: Event) -> None:
            if isinstance(event, Refused) and event.ref == ref:
                refusals.append(event.error)

        def decided() -> bool:
            enough = least if any(isinstance(error, NoCapacity) for error in refusals) else count
            return self.ready(ref) >= enough or self.failure(ref) is not None or any(not error.retry for error in refusals)

        unsubscribe = self.subscribe(on_event)
        try:
            await self._until(decided, asyncio.get_running_loop().time() + wait_s)
        finally:
            unsubscribe()
        if self.ready(ref) >= least:
            return
        known = self.failure(ref) or (refusals[-1] if refusals else None)
        if known is not None:
            raise known
        states = ", ".join(f"{event.id} is {event.state}" for event in self.replicas(ref.name) if event.ref == ref)
        raise DeadlineExceeded(f"{ref}: {self.ready(ref)} of {count} replicas ready after {wait_s:g} s ({states or 'none has started'})")

    async def _until(self, true: Callable[[], bool], until: float) -> bool:
        """Whether ``true()`` has become so before the loop's clock says ``until``; looked at whenever a node has said something."""
        try:
            async with asyncio.timeout_at(until):
                while not true():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    # -- questions ----------------------------------------------------------------------------------------------------

    async def statistics(self, name: str | None = None, version: int | None = None) -> list[dict[str, Any]]:
        """Triton's ``model_stats`` entries, one a version, added up over the nodes that answer. Raises NodeUnreachable when none does."""
        return merged(entry for answer in await self._ask_all("statistics", name=name, version=version) for entry in answer)

    async def logs(self, ref: Ref, lines: int = 100) -> list[str]:
        """The last lines that the version's replicas wrote, node by node. Raises NodeUnreachable when none answers."""
        return [line for answer in await self._ask_all("logs", name=ref.name, version=ref.version, lines=lines) for line in answer]

    async def reset(self, ref: Ref) -> None:
        """Forget that the version failed, so that it may be started again at once. Raises NodeUnreachable when no node answers."""
        await self._ask_all("reset", name=ref.name, version=ref.version)
        for client in self._clients.values():
            client.failures.pop(ref, None)

    async def _ask_all(self, op: str, **fields: Any) -> list[Any]:
        answers = await asyncio.gather(*(client.ask(op, **fields) for client in self._clients.values()), return_exceptions=True)
        for error in answers:
            if isinstance(error, BaseException) and not isinstance(error, NodeUnreachable):
                raise error
        good = [answer for answer in answers if not isinstance(answer, BaseException)]
        if not good:
            raise NodeUnreachable(f"no node of {', '.join(self._clients)} answers")
        return good
