"""The control socket, spoken to as a gateway does, with a node that only notes what it is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from functions.errors import NoCapacity
from functions.names import Ref
from workers.node.messages import MAX_LINE, ReplicaEvent, State, VersionEvent
from workers.node.server import Server

TOKEN = "t" * 32
REPLICA = ReplicaEvent("f-1", "f", 1, "sha256:0", State.READY, "unix:/x", "ab", 1)
FAILED = VersionEvent("g", 2, failed=True, wire=302, message="no")


class Noted:
    """Keeps ``server.Node``'s promise by notes."""

    def __init__(self) -> None:
        self.wants: list[tuple[str, Ref, int, float]] = []
        self.resets: list[Ref] = []

    def hello(self) -> dict[str, Any]:
        return {"id": "n", "cores": 2, "memory_bytes": 3, "pid": 4}

    def want(self, client: str, ref: Ref, count: int, ttl_s: float) -> int:
        if ref.name == "full":
            raise NoCapacity("no room")
        if ref.name == "broken":
            raise RuntimeError("our bug")
        self.wants.append((client, ref, count, ttl_s))
        return count

    def replicas(self, name: str | None) -> list[ReplicaEvent]:
        return [REPLICA] if name in (None, "f") else []

    def events(self) -> list[ReplicaEvent | VersionEvent]:
        return [REPLICA, FAILED]

    def statistics(self, name: str | None, version: int | None) -> list[dict[str, Any]]:
        return [{"name": name, "version": version}]

    def logs(self, ref: Ref, lines: int) -> list[str]:
        return [f"{ref} {lines}"]

    def reset(self, ref: Ref) -> None:
        self.resets.append(ref)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def hear(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self.reader.readline(), 10)
        message: dict[str, Any] = json.loads(line) if line else {}
        return message

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self.writer.write(json.dumps({"op": op, "seq": 1, **fields}).encode() + b"\n")
        return await self.hear()


@pytest.fixture
async def node(short: Path) -> AsyncIterator[tuple[Noted, Server, Path]]:
    noted = Noted()
    server = Server(noted, TOKEN)
    await server.start(short / "control")
    yield noted, server, short / "control"
    await server.close()


async def connect(path: Path, **hello: Any) -> Client:
    client = Client(*await asyncio.open_unix_connection(path, limit=MAX_LINE))
    answer = await client.ask("hello", token=TOKEN, **hello)
    assert {"seq": 1, "ok": {"id": "n", "cores": 2, "memory_bytes": 3, "pid": 4}} == answer
    return client


async def test_requests_are_answered(node: tuple[Noted, Server, Path]) -> None:
    noted, _, path = node
    client = await connect(path)

    assert {"seq": 1, "ok": 2} == await client.ask("want", name="f", version=1, count=2, ttl_s=3)
    assert [(Ref("f", 1), 2, 3.0)] == [want[1:] for want in noted.wants]
    assert [REPLICA] == [ReplicaEvent.from_json(each) for each in (await client.ask("replicas"))["ok"]]
    assert [] == (await client.ask("replicas", name="g"))["ok"]
    assert [{"name": "f", "version": 7}] == (await client.ask("statistics", name="f", version=7))["ok"]
    assert [{"name": None, "version": None}] == (await client.ask("statistics", name=None, version=None))["ok"]
    assert ["f@1 5"] == (await client.ask("logs", name="f", version=1, lines=5))["ok"]
    assert {"seq": 1, "ok": None} == await client.ask("reset", name="f", version=1)
    assert [Ref("f", 1)] == noted.resets
    client.writer.close()


async def test_each_connection_is_a_client_of_its_own_unless_it_has_a_name(node: tuple[Noted, Server, Path]) -> None:
    noted, _, path = node
    for hello in ({}, {}, {"client": "controller"}, {"client": "controller"}):
        client = await connect(path, **hello)
        await client.ask("want", name="f", version=1, count=1, ttl_s=3)
        client.writer.close()

    assert [2, 1] == [len({want[0] for want in noted.wants[:2]}), len({want[0] for want in noted.wants[2:]})]


async def test_a_watcher_first_hears_what_is_and_then_what_changes(node: tuple[Noted, Server, Path]) -> None:
    _, server, path = node
    client = await connect(path)
    assert {"seq": 1, "ok": None} == await client.ask("watch")
    assert (REPLICA, FAILED) == (ReplicaEvent.from_json(await client.hear()), VersionEvent.from_json(await client.hear()))
    server.publish(VersionEvent("g", 2, failed=False))

    assert not VersionEvent.from_json(await client.hear()).failed
    client.writer.close()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"op": "dance"}, "unknown op 'dance'"),
        ({"op": None}, "unknown op"),
        ({"op": "want", "name": "../x", "version": 1, "count": 1, "ttl_s": 1}, "not a function name"),
        ({"op": "want", "name": "f", "version": 0, "count": 1, "ttl_s": 1}, "version = '0'"),
        ({"op": "want", "name": "f", "version": 1, "count": -1, "ttl_s": 1}, "count = '-1'"),
        ({"op": "want", "name": "f", "version": 1, "count": True, "ttl_s": 1}, "count = 'True'"),
        ({"op": "want", "name": "f", "version": 1, "count": 1, "ttl_s": "x"}, "ttl_s = 'x'"),
        ({"op": "want", "name": "f", "version": 1, "count": 1, "ttl_s": 1e9}, "ttl_s"),
        ({"op": "logs", "name": "f", "version": 1}, "lines = 'None'"),
    ],
)
async def test_a_wrong_request_is_refused_and_the_connection_lives(
    node: tuple[Noted, Server, Path], fields: dict[str, Any], said: str
) -> None:
    client = await connect(node[2])
    answer = await client.ask(**fields)

    assert 101 == answer["error"]["wire"]
    assert said in answer["error"]["message"]
    assert "ok" in await client.ask("replicas")
    client.writer.close()


async def test_what_the_node_raises_is_answered_and_our_bugs_are_not_told(node: tuple[Noted, Server, Path]) -> None:
    client = await connect(node[2])
    full = await client.ask("want", name="full", version=1, count=1, ttl_s=1)
    broken = await client.ask("want", name="broken", version=1, count=1, ttl_s=1)

    assert {"wire": 204, "message": "no room"} == full["error"]
    assert (900, True) == (broken["error"]["wire"], "our bug" not in broken["error"]["message"])
    client.writer.close()


@pytest.mark.parametrize("first", [{"op": "hello", "token": "wrong"}, {"op": "watch"}, {"op": "hello", "token": 7}, {"op": "hello"}])
async def test_without_the_token_nothing_is_answered(node: tuple[Noted, Server, Path], first: dict[str, Any]) -> None:
    client = Client(*await asyncio.open_unix_connection(node[2]))
    answer = await client.ask(**first)

    assert 106 == answer["error"]["wire"]
    assert {} == await client.hear()
    client.writer.close()


@pytest.mark.parametrize(
    "line", [b"not json\n", b"[]\n", b"\xff\n", b"x" * (MAX_LINE + 10) + b"\n"], ids=["text", "array", "bytes", "long"]
)
async def test_broken_lines_end_the_connection_and_nothing_else(node: tuple[Noted, Server, Path], line: bytes) -> None:
    client = await connect(node[2])
    client.writer.write(line + b"\n")
    with contextlib.suppress(ConnectionResetError):  # it may be cut with bytes of ours unread
        assert {} == await client.hear()
    client.writer.close()

    other = await connect(node[2])
    other.writer.close()


async def test_a_socket_left_by_a_dead_node_is_replaced(short: Path) -> None:
    (short / "control").write_text("")
    server = Server(Noted(), TOKEN)
    await server.start(short / "control")
    client = await connect(short / "control")
    client.writer.close()
    await server.close()
