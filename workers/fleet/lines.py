"""All links of one router: dials the replicas that the nodes report, and settles what lay with those that are lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from functions.errors import DespinaError, Draining, InvalidRequest
from functions.names import Ref
from workers.fleet.addresses import dial
from workers.fleet.call import Call
from workers.fleet.links import Calls, Link
from workers.fleet.outcalls import Outcalls
from workers.fleet.pools import Pool
from workers.fleet.replicas import Replica
from workers.fleet.wrecks import Wreck
from workers.node.messages import ReplicaEvent, State

log = logging.getLogger(__name__)

GONE_WAIT_S = 2.0
"""How long a lost link waits for the node to say which calls had started."""
DIAL_AGAIN_S = 0.1
DIAL_AGAIN_MAX_S = 10.0
DIALS = 12
"""After so many failed dials in a row (about a minute) a replica is forgotten until its node reports it again."""


class Door(Calls, Protocol):
    """What the lines need of the router."""

    def pool(self, ref: Ref) -> Pool:
        """The pool of a version, made if new."""

    def submit(self, call: Call) -> None: ...

    def cancel(self, call: Call) -> None: ...

    def pump(self, pool: Pool) -> None:
        """Hand out what waits, as far as credit allows."""


class Lines:
    """Belongs to one router and its loop; keeps the promise of ``links.Life``."""

    def __init__(self, door: Door, resolve: Callable[[Ref, str], Ref], timeout_s: float) -> None:
        self._door = door
        self._resolve = resolve
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._replicas: dict[str, Replica] = {}
        self._links: set[Link] = set()
        """Those whose socket is, or is about to be, open."""
        self._no_links: asyncio.Future[None] | None = None

    # -- what the nodes say -------------------------------------------------------------------------------------------

    def on_replica(self, event: ReplicaEvent) -> None:
        replica = self._replicas.get(event.id)
        if replica is not None:
            replica.event = event
        elif event.state.serving:
            replica = self._replicas[event.id] = Replica(event, self._door.pool(event.ref))
            replica.pool.replicas += 1
        else:
            return
        if event.state.gone:
            self._gone(replica)
        elif event.state is State.DRAINING and replica.link is not None:
            self.draining(replica.link)
        elif replica.event.state.serving and replica.at_rest:
            self._dial(replica)

    def on_vanished(self, id: str) -> None:
        """The node no longer knows the replica, and did not see how it ended. An open link proves that it lives."""
        replica = self._replicas.get(id)
        if replica is not None and replica.link is None:
            self._settle(replica, None)
            self._forget(replica)

    def _gone(self, replica: Replica) -> None:
        replica.stop_timer()
        if replica.link is None:
            self._settle(replica, replica.event)
            self._forget(replica)
            return
        # Replies may still lie in the socket; its end follows. A child of the dead process that kept the socket open must not hold us.
        self.draining(replica.link)
        replica.timer = self._loop.call_later(GONE_WAIT_S, replica.link.close, "its replica is gone")

    # -- what the links say -------------------------------------------------------------------------------------------

    def greeted(self, link: Link) -> None:
        replica = link.peer
        pool = replica.pool
        if link not in pool.linked:
            replica.dials = 0
            pool.linked.append(link)
            pool.barred = pool.trouble = None
            if replica.event.state.serving:
                pool.links.append(link)
            log.info("linked version=%s replica=%s credit=%d", pool.ref, replica.event.id, link.credit)

    def draining(self, link: Link) -> None:
        links = link.peer.pool.links
        if link in links:
            links.remove(link)

    def outcalled(self, link: Link, id: int, payload: memoryview) -> None:
        replica = link.peer
        if replica.outcalls is None:
            replica.outcalls = Outcalls(link, replica.event.ref, self._resolve, self._door.submit, self._door.cancel)
        replica.outcalls.start(id, payload, self._loop.time(), self._timeout_s)

    def lost(self, link: Link, reason: str) -> None:
        replica, calls = link.peer, link.outstanding
        pool = replica.pool
        self.draining(link)
        self._closed(link)
        if link in pool.linked:
            pool.linked.remove(link)
        if replica.link is not link:
            return
        link.outstanding = {}
        replica.link = None
        replica.stop_timer()
        if replica.outcalls is not None:
            replica.outcalls.close()
            replica.outcalls = None
        log.log(
            logging.INFO if not calls or replica.event.state is State.STOPPED else logging.WARNING,
            "link_lost version=%s replica=%s calls=%d reason=%s",
            pool.ref,
            replica.event.id,
            len(calls),
            reason,
        )
        replica.wreck = Wreck(link.number, calls, reason)
        pool.limbo += len(calls)
        if replica.event.state.gone:
            self._settle(replica, replica.event)
            self._forget(replica)
        elif calls:
            replica.timer = self._loop.call_later(GONE_WAIT_S, self._unexplained, replica)
        else:
            replica.dials += link.number == 0
            self._settle(replica, None)
            self._dial_later(replica)

    # -- dialling -----------------------------------------------------------------------------------------------------

    def _dial(self, replica: Replica) -> None:
        replica.timer = None
        replica.task = self._loop.create_task(self._connect(replica), name=f"dial {replica.event.id}")

    async def _connect(self, replica: Replica) -> None:
        # READY has no deadline: a replica that runs a batch for another router answers after it, and a link without READY carries no calls.
        try:
            link = replica.link = Link(self._door, self, replica, replica.hello(), self._loop)
        except ValueError as error:
            log.error("replica_unusable version=%s replica=%s error=%s", replica.event.ref, replica.event.id, error)
            self._forget(replica)
            return
        self._links.add(link)
        try:
            await dial(replica.event.address, lambda: link)
        except (OSError, InvalidRequest) as error:
            self._not_dialled(replica, link, error)
        except asyncio.CancelledError:
            # uvloop closes a transport whose dial is cancelled without telling its protocol, even when it was connected a moment before.
            self._closed(link)
            raise
        finally:
            replica.task = None

    def _not_dialled(self, replica: Replica, link: Link, error: Exception) -> None:
        event = replica.event
        log.warning("dial_failed version=%s replica=%s address=%s error=%r", event.ref, event.id, event.address, error)
        self._closed(link)
        replica.link = None
        replica.dials += 1
        if event.state.gone:
            self._forget(replica)
        else:
            self._dial_later(replica)

    def _dial_later(self, replica: Replica) -> None:
        if replica.dials > DIALS:
            self._forget(replica)
        elif replica.event.state.serving and replica.timer is None:
            replica.timer = self._loop.call_later(min(DIAL_AGAIN_S * 2**replica.dials, DIAL_AGAIN_MAX_S), self._dial, replica)

    # -- the lost -----------------------------------------------------------------------------------------------------

    def _unexplained(self, replica: Replica) -> None:
        replica.timer = None
        self._settle(replica, None)
        self._dial_later(replica)

    def _settle(self, replica: Replica, event: ReplicaEvent | None) -> None:
        wreck, replica.wreck = replica.wreck, None
        if wreck is None:
            return
        replica.pool.limbo -= len(wreck.calls)
        terms = replica.pool.terms
        failed, again = wreck.settle(event, idempotent=terms is not None and terms.idempotent)
        for call in again:
            self._door.returned(call)
        self._door.pump(replica.pool)
        for call, error in failed:
            self._door.failed(call, error)

    def _forget(self, replica: Replica) -> None:
        replica.stop_timer()
        if self._replicas.pop(replica.event.id, None) is replica:
            replica.pool.replicas -= 1

    def _closed(self, link: Link) -> None:
        self._links.discard(link)
        if not self._links and self._no_links is not None and not self._no_links.done():
            self._no_links.set_result(None)

    async def close(self) -> None:
        """Cut every link; calls that lie there fail as Draining."""
        dials = [replica.task for replica in self._replicas.values() if replica.task is not None]
        for task in dials:
            task.cancel()
        await asyncio.gather(*dials, return_exceptions=True)
        for replica in list(self._replicas.values()):
            self._forget(replica)
            link, replica.link = replica.link, None
            calls = list(replica.wreck.calls.values()) if replica.wreck is not None else []
            if link is not None:
                calls += link.outstanding.values()
                link.close("this router is closing")
            for call in calls:
                self._door.failed(call, _shutting_down(call))
        if self._links:
            self._no_links = self._loop.create_future()
            await self._no_links


def _shutting_down(call: Call) -> DespinaError:
    return Draining(f"{call.ref}: this router is shutting down")
