"""A replica, and the nodes, as small as a test needs them: real frames over a real unix socket, and a list of leases."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from functions.errors import DespinaError
from functions.names import Ref
from functions.protocol import frames
from functions.protocol.frames import Kind
from workers.fleet.call import Call
from workers.fleet.events import Event
from workers.fleet.observation import Observation
from workers.node.messages import ReplicaEvent, State

WAIT_S = 5.0
DIGEST = "sha256:" + "ab" * 32


class Received:
    """One frame that a replica got."""

    def __init__(self, kind: int, id: int, payload: memoryview) -> None:
        self.kind, self.id, self.payload = Kind(kind), id, bytes(payload)

    @property
    def body(self) -> bytes:
        return bytes(frames.read_call(memoryview(self.payload))[2])

    @property
    def head(self) -> frames.CallHead:
        return frames.read_call(memoryview(self.payload))[0]


class FakeReplica(asyncio.Protocol):
    """Listens on a unix socket, greets, keeps what it gets, and sends what the test says.
    ``echo`` answers each CALL with its body at once."""

    def __init__(self, path: Path, ref: Ref, *, credit: int = 4, echo: bool = False, link: int = 1) -> None:
        self.credit, self.echo, self.link = credit, echo, link
        self.event = ReplicaEvent(
            id=path.stem,
            name=ref.name,
            version=ref.version,
            digest=DIGEST,
            state=State.READY,
            address=f"unix:{path}",
            token=secrets.token_hex(32),
            epoch=7,
        )
        self.received: asyncio.Queue[Received] = asyncio.Queue()
        self.hello: bytes | None = None
        self.connections = 0
        self.reads = 0
        self.closed = asyncio.Event()
        self._out: list[bytes] = []
        self._server: asyncio.Server | None = None
        self._transport: asyncio.Transport | None = None

    async def listen(self) -> FakeReplica:
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: self, self.event.address.removeprefix("unix:"))
        return self

    async def stop(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            await asyncio.wait_for(self.closed.wait(), WAIT_S)
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def gone(self, *running: int, wire: int = 320, message: str = "signal 9") -> ReplicaEvent:
        """The node's word on its end; ``running`` is frame ids."""
        return replace(self.event, state=State.FAILED, wire=wire, message=message, running=tuple(self.link << 48 | id for id in running))

    def send(self, *parts: bytes) -> None:
        assert self._transport is not None
        self._transport.write(b"".join(parts))

    def reply(self, id: int, body: bytes = b"") -> None:
        self.send(frames.reply(id, len(body)), body)

    def cut(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    async def next(self, kind: Kind = Kind.CALL) -> Received:
        frame = await asyncio.wait_for(self.received.get(), WAIT_S)

        assert kind == frame.kind
        return frame

    async def calls(self, count: int) -> list[Received]:
        return [await self.next() for _ in range(count)]

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        self._splitter = frames.Splitter(self._frame)
        self.connections += 1
        self.closed.clear()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.closed.set()

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        self._splitter.feed(data)
        if self._out:
            out, self._out = self._out, []
            self.send(*out)

    def _frame(self, kind: int, _flags: int, id: int, payload: memoryview) -> None:
        if kind == Kind.HELLO:
            self.hello = bytes(payload)
            if self.credit >= 0:
                self._out.append(frames.ready(self.credit, 1, self.link))
        elif self.echo and kind == Kind.CALL:
            body = frames.read_call(payload)[2]
            self._out += [frames.reply(id, len(body)), bytes(body)]
        else:
            self.received.put_nowait(Received(kind, id, payload))


class FakeNodes:
    """Keeps the leases it is asked for, and tells events when the test says so."""

    def __init__(self) -> None:
        self.connected = 1
        self.wants: list[tuple[Ref, int]] = []
        self.asked = asyncio.Event()
        self._listeners: list[Callable[[Event], None]] = []

    def want(self, ref: Ref, count: int, ttl_s: float) -> None:  # noqa: ARG002
        self.wants.append((ref, count))
        self.asked.set()

    def subscribe(self, on_event: Callable[[Event], None]) -> Callable[[], None]:
        self._listeners.append(on_event)
        return lambda: self._listeners.remove(on_event)

    def tell(self, *events: Event) -> None:
        for event in events:
            for listener in list(self._listeners):
                listener(event)


class Answer:
    """A call's caller: makes it, and waits for its end."""

    def __init__(self, ref: Ref, body: bytes = b"x", *, timeout_s: float = WAIT_S, **fields: Any) -> None:
        self.end: asyncio.Future[bytes | DespinaError] = asyncio.get_running_loop().create_future()
        self.call = Call(
            ref, body, deadline=asyncio.get_running_loop().time() + timeout_s, on_reply=self._replied, on_failure=self._failed, **fields
        )

    def _replied(self, _call: Call, _header_length: int, body: memoryview, _flags: int) -> None:
        self.end.set_result(bytes(body))

    def _failed(self, _call: Call, error: DespinaError) -> None:
        self.end.set_result(error)

    @property
    def ended(self) -> bool:
        return self.end.done()

    async def result(self) -> bytes | DespinaError:
        return await asyncio.wait_for(asyncio.shield(self.end), WAIT_S)


async def until(true: Callable[[], bool]) -> None:
    """Let the loop turn until ``true()``; fails after WAIT_S."""
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0)


def load(value: float, calls: int = 1) -> Observation:
    return Observation(load=value, queued=0, running=int(value), calls=calls, idle_s=0.0)
