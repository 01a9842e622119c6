"""The link to one node: its state mirrored here, requests answered, leases sent without waiting. Connects again for as long as it lives."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from functions.errors import DeadlineExceeded, DespinaError, NodeUnreachable, ProtocolError, from_wire
from functions.names import Ref
from workers.fleet.addresses import dial
from workers.fleet.events import Event, Refused, Vanished
from workers.fleet.json_lines import JsonLines
from workers.node.backoff import Backoff
from workers.node.messages import ReplicaEvent, VersionEvent

log = logging.getLogger(__name__)

REQUEST_S = 10.0


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node's control socket is, and the token it asks for."""

    address: str
    token: str


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What is needed of a node's answer to ``hello``."""

    id: str
    cores: int


class NodeClient:
    """Run by ``run()``; everything else only on its loop.

    ``on_event`` hears every event; ``on_connected`` is called after each (re)connect, when the mirror is complete. While the
    connection is down the mirror stays as it was: replicas serve without their node.
    """

    def __init__(self, node: NodeAddress, on_event: Callable[[Event], None], on_connected: Callable[[NodeClient], None]) -> None:
        self._node = node
        self._on_event = on_event
        self._on_connected = on_connected
        # The name by which the node knows our leases again after a reconnect: renewed then, not added to.
        self._name = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._lines: JsonLines | None = None
        self._seqs = itertools.count(1)
        self._asked: dict[int, Callable[[Any, DespinaError | None], None]] = {}
        self.info: NodeInfo | None = None
        self.connected = False
        self.replicas: dict[str, ReplicaEvent] = {}
        """By id; those that are gone are not here."""
        self.failures: dict[Ref, VersionEvent] = {}
        """Versions that cannot start."""

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        again, reported = Backoff(0.05, 2, 2), ""
        while True:
            try:
                reason = await self._session()
                again.succeeded()
            except (OSError, DespinaError) as error:
                reason = str(error) or type(error).__name__
            finally:
                self._disconnect("")
            if reason != reported:
                log.warning("node_lost address=%s reason=%s", self._node.address, reason)
                reported = reason
            await asyncio.sleep(again.failed())

    async def ask(self, op: str, timeout_s: float = REQUEST_S, **fields: Any) -> Any:
        """A request's answer. Raises NodeUnreachable, DeadlineExceeded, or what the node answered."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(value: Any, error: DespinaError | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(value)

        seq = self._send(op, fields, answered)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise DeadlineExceeded(f"the node at {self._node.address} did not answer {op!r} within {timeout_s:g} s") from None
        finally:
            self._asked.pop(seq, None)

    def want(self, ref: Ref, count: int, ttl_s: float) -> None:
        """Send a lease; a refusal comes as the event Refused. Nothing is sent while disconnected."""

        def answered(_: Any, error: DespinaError | None) -> None:
            if error is not None:
                self._on_event(Refused(ref, error))

        if self.connected:
            self._send("want", {"name": ref.name, "version": ref.version, "count": count, "ttl_s": ttl_s}, answered)

    # -- one connection -----------------------------------------------------------------------------------------------

    async def _session(self) -> str:
        """Connect, and return why the connection has ended."""
        closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_closed(why: str) -> None:
            if not closed.done():
                closed.set_result(why)
                self._disconnect(why)

        lines = JsonLines(self._line, on_closed)
        self._lines = await dial(self._node.address, lambda: lines)
        hello = await self.ask("hello", token=self._node.token, client=self._name)
        self.info = _info(hello)
        self.failures.clear()  # the node may be another process than before; what still fails comes again now
        await self.ask("watch")
        self._reconcile(await self.ask("replicas"))
        self.connected = True
        log.info("node_connected node=%s address=%s", self.info.id, self._node.address)
        self._on_connected(self)
        return await closed

    def _disconnect(self, why: str) -> None:
        lines, self._lines = self._lines, None
        self.connected = False
        if lines is not None:
            lines.close()
        asked, self._asked = self._asked, {}
        for answered in asked.values():
            answered(None, NodeUnreachable(f"the connection to the node at {self._node.address} was lost: {why}"))

    def _reconcile(self, listed: list[dict[str, Any]]) -> None:
        """After a reconnect: what is not listed any more ended while nobody looked."""
        known = {entry["id"] for entry in listed}
        for id in [id for id in self.replicas if id not in known]:
            del self.replicas[id]
            self._on_event(Vanished(id))

    def _send(self, op: str, fields: dict[str, Any], answered: Callable[[Any, DespinaError | None], None]) -> int:
        if self._lines is None:
            raise NodeUnreachable(f"the node at {self._node.address} does not answer")
        seq = next(self._seqs)
        self._asked[seq] = answered
        self._lines.send({"op": op, "seq": seq, **fields})
        return seq

    def _line(self, line: dict[str, Any]) -> None:
        try:
            if "seq" in line:
                self._answer(line)
            elif line["event"] == "replica":
                self._replica(ReplicaEvent.from_json(line))
            elif line["event"] == "version":
                self._version(VersionEvent.from_json(line))
            else:
                raise ValueError(f"unknown event {line['event']!r}")
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"the node at {self._node.address} sent what is no message: {error!r} in {json.dumps(line)[:200]}"
            ) from None

    def _answer(self, line: dict[str, Any]) -> None:
        refusal = line.get("error")
        error = None if refusal is None else from_wire(int(refusal["wire"]), str(refusal["message"]))
        value = line["ok"] if error is None else None
        answered = self._asked.pop(line["seq"], None)
        if answered is not None:  # else its asker has gone away
            answered(value, error)

    def _replica(self, event: ReplicaEvent) -> None:
        if event.state.gone:
            self.replicas.pop(event.id, None)
        else:
            self.replicas[event.id] = event
        self._on_event(event)

    def _version(self, event: VersionEvent) -> None:
        if event.failed:
            self.failures[event.ref] = event
        else:
            self.failures.pop(event.ref, None)
        self._on_event(event)


def _info(hello: dict[str, Any]) -> NodeInfo:
    try:
        return NodeInfo(str(hello["id"]), int(hello["cores"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"a node answered hello with {hello!r}: {error!r}") from None
