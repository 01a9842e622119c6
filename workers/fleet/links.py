"""One link: the stream socket between this router and one replica. Frames in, callbacks out; it trusts nothing it reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from functions.errors import DespinaError, ProtocolError, from_wire
from functions.protocol import frames
from functions.protocol.frames import Kind, Splitter
from workers.fleet.call import Body, Call

if TYPE_CHECKING:
    from workers.fleet.replicas import Replica

CREDIT_LIMIT = 1 << 20
"""More credit than this is a broken replica: READY carries 2 × max(1, max_batch_size) × instances."""
LINK_LIMIT = 1 << 16
JOIN_BYTES = 64 * 1024
"""Up to here one joined write is cheaper than a vector of small buffers; above, the copy costs more."""
EARLY_PARTS = 8
"""So many parts, four calls, leave without waiting for the end of the loop's turn: the replica begins on another core while this one
still reads requests. (32 connections, two cores: a quarter more calls a second.)"""
_FLAGS = sum(frames.Flag)
_READY, _REPLY, _FAILURE, _RETURN, _OUTCALL, _GOODBYE = map(
    int, (Kind.READY, Kind.REPLY, Kind.FAILURE, Kind.RETURN, Kind.OUTCALL, Kind.GOODBYE)
)


class Calls(Protocol):
    """Who is told what became of the calls on a link. On the loop; none may raise."""

    def replied(self, call: Call, header_length: int, body: memoryview, flags: int) -> None: ...

    def failed(self, call: Call, error: DespinaError) -> None: ...

    def returned(self, call: Call) -> None: ...

    def turned(self, link: Link) -> None:
        """All that arrived together has been told; credit may have come back."""


class Life(Protocol):
    """Who is told what became of the link itself. On the loop; none may raise, but ``outcalled`` a ProtocolError."""

    def greeted(self, link: Link) -> None:
        """READY: the first time, or with another credit."""

    def draining(self, link: Link) -> None:
        """GOODBYE."""

    def outcalled(self, link: Link, id: int, payload: memoryview) -> None: ...

    def lost(self, link: Link, reason: str) -> None:
        """The socket is closed; ``link.outstanding`` is what lay with the replica."""


class Link(asyncio.Protocol):
    """``credit`` is how many calls may lie with the replica; ``outstanding`` is those that do, by frame id in the order sent."""

    __slots__ = (
        "_calls",
        "_closing",
        "_hello",
        "_life",
        "_loop",
        "_next_id",
        "_out",
        "_out_bytes",
        "_splitter",
        "_transport",
        "_why",
        "credit",
        "number",
        "outstanding",
        "peer",
    )

    def __init__(self, calls: Calls, life: Life, peer: Replica, hello: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = calls
        self._life = life
        self._loop = loop
        self._hello = hello
        self._splitter = Splitter(self._frame)
        self._transport: asyncio.Transport | None = None
        self._out: list[Body] = []
        self._out_bytes = 0
        self._next_id = 1
        self._closing = False
        self._why = "the replica closed it"
        self.peer = peer
        self.number = 0
        """The link's number in the replica's page; 0 until READY."""
        self.credit = 0
        self.outstanding: dict[int, Call] = {}

    # -- what the router sends --------------------------------------------------------------------------------------

    def send(self, call: Call, now: float) -> None:
        """Hand the call over. It leaves with the calls around it in this turn of the loop, in one write."""
        id = call.id = self._next_id
        self._next_id = id + 1
        call.link = self
        self.outstanding[id] = call
        remaining_us = int((call.deadline - now) * 1e6)
        head = frames.call(
            id,
            call.size,
            remaining_us if remaining_us > 0 else 1,
            call.header_length,
            int((now - call.since) * 1e6),
            call.hops,
            call.flags,
            call.context,
        )
        self._write(head, call.body, call.size)

    def cancel(self, id: int) -> None:
        self._write(frames.bare(Kind.CANCEL, id), b"", 0)

    def send_result(self, id: int, header_length: int, body: memoryview, flags: int) -> None:
        self._write(frames.result(id, len(body), header_length, flags), body, len(body))

    def send_failure(self, id: int, error: DespinaError) -> None:
        self._write(frames.failure(id, error.wire, error.message), b"", 0)

    def close(self, why: str) -> None:
        """At once; what is not written yet is lost. ``Life.lost`` follows in another turn of the loop."""
        if not self._closing:
            self._closing, self._why = True, why
            if self._transport is not None:
                self._transport.abort()

    def _write(self, head: bytes, body: Body, size: int) -> None:
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        out.append(head)
        if size:
            out.append(body)
        self._out_bytes += size
        if len(out) >= EARLY_PARTS:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        size, self._out_bytes = self._out_bytes, 0
        if self._closing or self._transport is None or not out:
            return
        if size <= JOIN_BYTES:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

    # -- what the replica sends -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        if self._closing:
            self._transport.abort()
        else:
            self._transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        try:
            self._splitter.feed(data)
        except ProtocolError as error:
            self.close(f"it broke the frame format: {error}")
        if not self._closing:
            self._calls.turned(self)

    def eof_received(self) -> None:
        # A peer that writes no more owes us nothing; waiting until it has read everything could last for ever.
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self._closing:
            self._why = f"{type(exc).__name__}: {exc}"
        self._closing, self._transport = True, None
        self._life.lost(self, self._why)

    def _frame(self, kind: int, flags: int, id: int, payload: memoryview) -> None:
        if self._closing:
            return
        if kind == _REPLY:
            header_length, body = frames.read_reply(payload, flags)
            if flags & ~_FLAGS:
                raise ProtocolError(f"a REPLY with unknown flags {flags:#x}")
            call = self.outstanding.pop(id, None)
            if call is None:
                raise ProtocolError(f"a REPLY to id {id}, which is not outstanding")
            self._calls.replied(call, header_length, body, flags)
        else:
            self._rare(kind, id, payload)

    def _rare(self, kind: int, id: int, payload: memoryview) -> None:
        if kind == _READY:
            self._ready(payload)
        elif self.number == 0 and kind != _GOODBYE:
            raise ProtocolError(f"a frame of kind {kind} before READY")
        elif kind == _FAILURE:
            error = _read_failure(payload)
            self._calls.failed(self._outstanding(id, "FAILURE"), error)
        elif kind == _RETURN:
            _empty(payload, "RETURN")
            self._calls.returned(self._outstanding(id, "RETURN"))
        elif kind == _OUTCALL:
            self._life.outcalled(self, id, payload)
        elif kind == _GOODBYE:
            _empty(payload, "GOODBYE")
            self._life.draining(self)
        else:
            raise ProtocolError(f"a frame of kind {kind}, which only a router sends")

    def _ready(self, payload: memoryview) -> None:
        if len(payload) != frames.READY.size:
            raise ProtocolError(f"a READY of {len(payload)} bytes, not {frames.READY.size}")
        credit, _, number = frames.READY.unpack(payload)
        if credit > CREDIT_LIMIT or not 0 < number < LINK_LIMIT or self.number not in (0, number):
            raise ProtocolError(
                f"a READY with credit {credit} and link {number} (limits {CREDIT_LIMIT} and {LINK_LIMIT - 1}; link was {self.number})"
            )
        self.credit, self.number = credit, number
        self._life.greeted(self)

    def _outstanding(self, id: int, kind: str) -> Call:
        call = self.outstanding.pop(id, None)
        if call is None:
            raise ProtocolError(f"a {kind} for id {id}, which is not outstanding")
        return call


def _read_failure(payload: memoryview) -> DespinaError:
    if len(payload) > frames.FAILURE_HEAD.size + frames.MAX_MESSAGE:
        raise ProtocolError(f"a FAILURE of {len(payload)} bytes; the limit is {frames.FAILURE_HEAD.size + frames.MAX_MESSAGE}")
    wire, message = frames.read_failure(payload)
    error = from_wire(wire, message)
    if error.wire != wire:
        raise error
    return error


def _empty(payload: memoryview, kind: str) -> None:
    if len(payload):
        raise ProtocolError(f"a {kind} with {len(payload)} bytes; it has none")
