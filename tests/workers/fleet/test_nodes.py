"""Nodes and their client against the node's own server, with a node behind it that does what the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from functions.errors import DeadlineExceeded, DespinaError, NoCapacity, NodeUnreachable, NotFound, StartFailed, Unauthorized
from functions.names import Ref
from tests.workers.fleet.fakes import until
from workers.fleet.events import Event, Refused, Vanished
from workers.fleet.node_client import NodeAddress, NodeClient
from workers.fleet.nodes import Nodes
from workers.node.messages import ReplicaEvent, State, VersionEvent
from workers.node.server import Server
from workers.node.statistics import nothing_yet

F = Ref("f", 1)
TOKEN = "t" * 32


def event(id: str, state: State = State.READY, **fields: Any) -> ReplicaEvent:
    return ReplicaEvent(id, F.name, F.version, "sha256:00", state, f"unix:/run/{id}", "ab" * 32, 1, **fields)


class Node:
    """Keeps the promise of ``workers.node.server.Node``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.server = Server(self, TOKEN)
        self.wants: list[tuple[Ref, int]] = []
        self.clients: set[str] = set()
        self.refusal: DespinaError | None = None
        self.live: dict[str, ReplicaEvent] = {}
        self.failures: list[VersionEvent] = []

    @property
    def address(self) -> NodeAddress:
        return NodeAddress(f"unix:{self.path}", TOKEN)

    def tell(self, *events: ReplicaEvent | VersionEvent) -> None:
        for each in events:
            if isinstance(each, VersionEvent):
                self.failures = [each] if each.failed else []
            elif each.state.gone:
                self.live.pop(each.id, None)
            else:
                self.live[each.id] = each
            self.server.publish(each)

    async def restart(self) -> None:
        await self.server.close()
        self.server = Server(self, TOKEN)
        await self.server.start(self.path)

    def hello(self) -> Mapping[str, Any]:
        return {"id": self.path.stem, "cores": 4, "memory_bytes": 1 << 30, "pid": 7}

    def want(self, client: str, ref: Ref, count: int, ttl_s: float) -> int:  # noqa: ARG002
        self.clients.add(client)
        self.wants.append((ref, count))
        if self.refusal is not None:
            raise self.refusal
        return count

    def replicas(self, name: str | None) -> Iterable[ReplicaEvent]:  # noqa: ARG002
        return list(self.live.values())

    def events(self) -> Iterable[ReplicaEvent | VersionEvent]:
        return [*self.live.values(), *self.failures]

    def statistics(self, name: str | None, version: int | None) -> list[dict[str, Any]]:
        return [nothing_yet(name or "f", version or 1) | {"inference_count": 2}]

    def logs(self, ref: Ref, lines: int) -> list[str]:
        if ref.name == "unknown":
            raise NotFound("no such log")
        return [f"{self.path.stem} {ref} {lines}"]

    def reset(self, ref: Ref) -> None:  # noqa: ARG002
        self.failures = []


@pytest.fixture
async def node(sockets: Path) -> AsyncIterator[Node]:
    node = Node(sockets / "n1")
    await node.server.start(node.path)
    yield node
    await node.server.close()


@asynccontextmanager
async def connected(*nodes: Node) -> AsyncIterator[tuple[Nodes, list[Event]]]:
    fleet, heard = Nodes([node.address for node in nodes]), []
    fleet.subscribe(heard.append)
    fleet.start()
    try:
        await until(lambda: fleet.connected == len(nodes))
        yield fleet, heard
    finally:
        await fleet.close()


async def test_events_that_were_and_events_that_come_are_heard_and_mirrored(node: Node) -> None:
    failed = VersionEvent("g", 2, failed=True, wire=302, message="g@2: boom", retry_after_s=30.0)
    node.tell(event("r1"), failed)
    async with connected(node) as (fleet, heard):
        await until(lambda: len(heard) == 2)

        assert [event("r1"), failed] == heard
        assert [event("r1")] == fleet.replicas("f") == fleet.replicas()
        assert [] == fleet.replicas("g")
        assert 4 == fleet.cores
        assert (True, False) == (fleet.failed(Ref("g", 2)), fleet.failed(F))

        late: list[Event] = []
        fleet.subscribe(late.append)

        assert [event("r1"), failed] == late

        node.tell(event("r1", State.FAILED, wire=320, message="signal 9", running=(1 << 48 | 5,)))
        await until(lambda: len(heard) == 3)

        assert [] == fleet.replicas()
        assert isinstance(heard[2], ReplicaEvent)
        assert (1 << 48 | 5,) == heard[2].running


async def test_a_replica_counts_when_all_its_lanes_are_ready(node: Node) -> None:
    async with connected(node) as (fleet, heard):
        lanes = [event(f"r{lane}", lane=lane % 2, lanes=2) for lane in range(4)]
        node.tell(lanes[0], replace(lanes[1], state=State.LOADING), lanes[2], replace(lanes[3], state=State.BUSY))
        await until(lambda: len(heard) == 4)

        assert 1 == fleet.ready(F)

        node.tell(lanes[1])
        await until(lambda: len(heard) == 5)

        assert 2 == fleet.ready(F)


async def test_leases_reach_the_node_under_one_name_and_the_largest_holder_counts(node: Node) -> None:
    async with connected(node) as (fleet, _):
        fleet.want(F, 1, 15.0)
        fleet.want(F, 4, 15.0, "release r")
        fleet.want(F, 1, 15.0)
        fleet.want(F, 0, 0.0, "release r")
        fleet.want(F, 0, 0.0)
        await until(lambda: len(node.wants) == 5)

        assert [1, 4, 4, 1, 0] == [count for _, count in node.wants]
        assert 1 == len(node.clients)


async def test_a_smaller_lease_is_told_when_the_larger_one_has_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.fleet.nodes.TICK_S", 0.01)
    async with connected(node) as (fleet, _):
        fleet.want(F, 1, 60.0)
        fleet.want(F, 3, 0.05, "release r")
        await until(lambda: [1, 3, 1] == [count for _, count in node.wants])


async def test_after_a_reconnect_leases_are_told_again_and_what_ended_meanwhile_has_vanished(node: Node) -> None:
    node.tell(event("r1"), event("r2"))
    async with connected(node) as (fleet, heard):
        fleet.want(F, 2, 60.0)
        await until(lambda: len(node.wants) == 1)
        del node.live["r1"]
        await node.restart()
        await until(lambda: len(node.wants) == 2)

        assert [(F, 2), (F, 2)] == node.wants
        assert 1 == len(node.clients)
        assert Vanished("r1") in heard
        assert [event("r2")] == fleet.replicas()


async def test_leases_given_before_a_node_answers_are_told_when_it_does(sockets: Path) -> None:
    node = Node(sockets / "n1")
    fleet = Nodes([node.address])
    fleet.start()
    fleet.want(F, 1, 60.0)
    with pytest.raises(NodeUnreachable, match=r"has answered within 0\.01 s"):
        await fleet.wait_connected(0.01)
    await node.server.start(node.path)
    await fleet.wait_connected(10.0)
    await until(lambda: node.wants == [(F, 1)])
    await fleet.close()
    await node.server.close()


async def test_a_refused_lease_is_an_event(node: Node) -> None:
    node.refusal = NoCapacity("no memory left")
    async with connected(node) as (fleet, heard):
        fleet.want(F, 1, 15.0)
        await until(lambda: bool(heard))

        assert isinstance(heard[0], Refused)
        assert (F, "no memory left", NoCapacity) == (heard[0].ref, str(heard[0].error), type(heard[0].error))


async def test_what_one_node_has_no_room_for_another_is_offered(sockets: Path) -> None:
    nodes = [Node(sockets / name) for name in ("n1", "n2")]
    for node in nodes:
        await node.server.start(node.path)
    async with connected(*nodes) as (fleet, heard):
        assert 8 == fleet.cores

        fleet.want(F, 1, 15.0)
        await until(lambda: any(node.wants for node in nodes))
        first = next(node for node in nodes if node.wants)
        other = next(node for node in nodes if node is not first)
        first.refusal = NoCapacity("full")
        fleet.want(F, 1, 15.0)
        await until(lambda: bool(other.wants))

        assert (F, 1) == other.wants[-1]
        assert [] == heard

        other.refusal = NoCapacity("full too")
        fleet.want(F, 1, 15.0)
        await until(lambda: bool(heard))

        assert "full too" == str(heard[0].error)  # type: ignore[union-attr]
    for node in nodes:
        await node.server.close()


async def test_questions_go_to_all_nodes_and_errors_come_back_as_they_were(sockets: Path) -> None:
    nodes = [Node(sockets / name) for name in ("n1", "n2")]
    for node in nodes:
        await node.server.start(node.path)
    async with connected(*nodes) as (fleet, _):
        (entry,) = await fleet.statistics("f", 1)

        assert ("f", "1", 4) == (entry["name"], entry["version"], entry["inference_count"])
        assert ["n1 f@1 5", "n2 f@1 5"] == await fleet.logs(F, 5)

        with pytest.raises(NotFound, match="no such log"):
            await fleet.logs(Ref("unknown", 1))

        await nodes[1].server.close()
        await until(lambda: fleet.connected == 1)

        assert ["n1 f@1 100"] == await fleet.logs(F)
    with pytest.raises(NodeUnreachable):
        await fleet.logs(F)
    await nodes[0].server.close()


async def test_a_reset_forgets_the_failure(node: Node) -> None:
    node.tell(VersionEvent("f", 1, failed=True, message="boom"))
    async with connected(node) as (fleet, _):
        await until(lambda: fleet.failed(F))
        await fleet.reset(F)

        assert not fleet.failed(F)
        assert [] == node.failures


# -- waiting for replicas ---------------------------------------------------------------------------------------------


async def test_waiting_ends_when_enough_replicas_are_ready(node: Node) -> None:
    async with connected(node) as (fleet, _):
        waiting = asyncio.create_task(fleet.wait_ready(F, 2, 10.0, least=1))
        node.tell(event("r1"))
        await until(lambda: fleet.ready(F) == 1)

        assert not waiting.done()

        node.tell(event("r2"))
        await asyncio.wait_for(waiting, 5)


async def test_waiting_ends_at_once_when_the_version_cannot_start(node: Node) -> None:
    async with connected(node) as (fleet, _):
        waiting = asyncio.create_task(fleet.wait_ready(F, 1, 60.0, least=1))
        node.tell(event("r1", State.LOADING), VersionEvent("f", 1, failed=True, wire=302, message="f@1: no module named x"))
        with pytest.raises(StartFailed, match="no module named x"):
            await asyncio.wait_for(waiting, 5)


async def test_where_there_is_no_room_for_all_the_least_is_enough(node: Node) -> None:
    async with connected(node) as (fleet, _):
        node.tell(event("r1"))
        waiting = asyncio.create_task(fleet.wait_ready(F, 3, 60.0, least=1))
        await until(lambda: fleet.ready(F) == 1)
        node.refusal = NoCapacity("2 processes are all there may be")
        fleet.want(F, 3, 60.0)
        await asyncio.wait_for(waiting, 5)


async def test_waiting_in_vain_says_how_far_it_has_come(node: Node) -> None:
    async with connected(node) as (fleet, _):
        node.tell(event("r1", State.WARMING))
        await until(lambda: bool(fleet.replicas()))
        with pytest.raises(DeadlineExceeded, match=r"0 of 1 replicas ready after 0.02 s \(r1 is warming\)"):
            await fleet.wait_ready(F, 1, 0.02, least=1)

        node.refusal = NoCapacity("2 processes are all there may be")
        waiting = asyncio.create_task(fleet.wait_ready(F, 1, 0.5, least=1))
        await asyncio.sleep(0)
        fleet.want(F, 1, 60.0)
        with pytest.raises(NoCapacity, match="all there may be"):
            await waiting


# -- a node that is not one -------------------------------------------------------------------------------------------


async def test_a_wrong_token_is_told_and_leaves_the_node_unconnected(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    client = NodeClient(NodeAddress(node.address.address, "wrong"), lambda _: None, lambda _: None)
    running = asyncio.create_task(client.run())
    await until(lambda: "node_lost" in caplog.text)

    assert not client.connected
    assert "hello with this node's token" in caplog.text
    with pytest.raises((NodeUnreachable, Unauthorized)):
        await client.ask("replicas")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def strange_node(path: Path, answer: Callable[[dict[str, Any]], bytes]) -> AsyncIterator[NodeClient]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(answer(json.loads(line)))
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    client = NodeClient(NodeAddress(f"unix:{path}", TOKEN), lambda _: None, lambda _: None)
    running = asyncio.create_task(client.run())
    yield client
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "line",
    [
        b"no json\n",
        b"[1]\n",
        b'{"event": "surprise"}\n',
        b'{"event": "replica", "id": 1}\n',
        b'{"what": 1}\n',
        b'{"seq": 1, "error": {}}\n',
        b'{"seq": 1, "ok": {"id": "n"}}\n',
        b"x" * (4 << 20) + b"x\n",
    ],
)
async def test_what_is_no_message_ends_the_connection_and_nothing_else(
    sockets: Path, caplog: pytest.LogCaptureFixture, line: bytes
) -> None:
    async with strange_node(sockets / "n", lambda _request: line) as client:
        await until(lambda: "node_lost" in caplog.text)

        assert not client.connected


async def test_a_question_that_is_not_answered_in_time_ends(sockets: Path) -> None:
    info = {"id": "n", "cores": 1, "memory_bytes": 1, "pid": 1}
    known = {"hello": info, "watch": None, "replicas": []}

    def answer(request: dict[str, Any]) -> bytes:
        if request["op"] not in known:
            return b""
        return json.dumps({"seq": request["seq"], "ok": known[request["op"]]}).encode() + b"\n"

    async with strange_node(sockets / "n", answer) as client:
        await until(lambda: client.connected)
        with pytest.raises(DeadlineExceeded, match=r"did not answer 'logs' within 0\.01 s"):
            await client.ask("logs", 0.01)
