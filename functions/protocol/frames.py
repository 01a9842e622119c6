"""The frames between a router and a replica: the only file that knows their bytes. Both ends use it.

A link is one stream socket. Each frame is a 16-byte prefix and a payload; integers are little-endian:

    version u8 | kind u8 | flags u16 | length u32 (bytes after the prefix) | id u64

    HELLO    → replica   token 32 bytes, digest 32 bytes, epoch u64     first frame of a link
    READY    → router    credit u32, pid u32, link u32                  answer to HELLO, and whenever the credit changes
    CALL     → replica   call head, context, body                       id: chosen by the router, unique on this link
    REPLY    → router    header length u32, body (the HTTP body)        id of the CALL
    FAILURE  both ways   error number u16, message UTF-8                id of the CALL or OUTCALL
    CANCEL   → replica   nothing                                        id of the CALL; it is still answered, somehow
    RETURN   → router    nothing                                        id of a CALL that will not be started: queue it again
    OUTCALL  → router    call head, name length u16, name, context,     a call to a function outside the closure; id chosen
                         body                                           by the replica, answered by RESULT or FAILURE
    RESULT   → replica   header length u32, body                        id of the OUTCALL
    GOODBYE  → router    nothing                                        it drains: no more CALLs; it closes after the last reply

A call head is: remaining µs u64 (time left of the caller's deadline; 0 = none), header length u32, waited µs u32 (in the
router's queue so far), priority u8 (0 = the model's default; this release sends nothing else), hops u8 (calls deep already),
context length u16. ``link`` in READY is the number this link has in the replica's page. The header length is KServe's
``Inference-Header-Content-Length``; NO_HEADER says the whole body is JSON. The context is a small JSON object (``{}`` is sent
as length 0) with what few calls have: ``traceparent``, ``sequence_id`` …

Why not protobuf or msgpack: a prefix that one struct call reads, bodies that nobody copies or parses on the way, and a
table short enough to check by hand. Reasons and limits: ``infra/decisions/0001-frames.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import NamedTuple

from functions.errors import ProtocolError

VERSION = 1
PREFIX = struct.Struct("<BBHIQ")
HELLO = struct.Struct("<32s32sQ")
READY = struct.Struct("<III")
CALL_HEAD = struct.Struct("<QIIBBH")
REPLY_HEAD = struct.Struct("<I")
FAILURE_HEAD = struct.Struct("<H")
NAME_HEAD = struct.Struct("<H")
NO_HEADER = 0xFFFF_FFFF
MAX_PAYLOAD = (1 << 30) + (1 << 20)
"""Largest payload in bytes: the body limit of 1 GiB and 1 MiB for heads and context."""
MAX_MESSAGE = 64 * 1024
"""Longest failure message in bytes; longer ones are cut by the sender."""


class Kind(IntEnum):
    HELLO = 1
    READY = 2
    CALL = 3
    REPLY = 4
    FAILURE = 5
    CANCEL = 6
    RETURN = 7
    OUTCALL = 8
    RESULT = 9
    GOODBYE = 10


class Flag(IntFlag):
    """How a body is encoded, and what the caller accepts back."""

    GZIP = 1
    DEFLATE = 2
    ACCEPT_GZIP = 4
    ACCEPT_DEFLATE = 8
    BINARY = 16
    """On a REPLY: the body ends in raw tensors, Content-Type application/octet-stream."""


class CallHead(NamedTuple):
    remaining_us: int
    header_length: int
    waited_us: int
    priority: int
    hops: int
    context_length: int


_CALL_BYTES = CALL_HEAD.size
# Plain numbers: an enum's member costs a look-up a frame.
_CALL, _REPLY, _RESULT = int(Kind.CALL), int(Kind.REPLY), int(Kind.RESULT)
_NOTHING = memoryview(b"")
# A namedtuple's own constructor is Python code; this is its C part, for a sequence of the right length.
_new = tuple.__new__


def prefix(kind: int, flags: int, length: int, id: int) -> bytes:
    return PREFIX.pack(VERSION, kind, flags, length, id)


def hello(token: bytes, digest: bytes, epoch: int) -> bytes:
    return prefix(Kind.HELLO, 0, HELLO.size, 0) + HELLO.pack(token, digest, epoch)


def ready(credit: int, pid: int, link: int) -> bytes:
    return prefix(Kind.READY, 0, READY.size, 0) + READY.pack(credit, pid, link)


def call(
    id: int,
    body_length: int,
    remaining_us: int,
    header_length: int = NO_HEADER,
    waited_us: int = 0,
    hops: int = 0,
    flags: int = 0,
    context: bytes = b"",
) -> bytes:
    """Everything of a CALL before its body; the body follows on the wire as it is, so that nobody copies it."""
    length = CALL_HEAD.size + len(context) + body_length
    return (
        PREFIX.pack(VERSION, _CALL, flags, length, id)
        + CALL_HEAD.pack(remaining_us, header_length, min(waited_us, 0xFFFF_FFFF), 0, hops, len(context))
        + context
    )


def reply(id: int, body_length: int, header_length: int = NO_HEADER, flags: int = 0) -> bytes:
    """Everything of a REPLY before its body."""
    return PREFIX.pack(VERSION, _REPLY, flags, REPLY_HEAD.size + body_length, id) + REPLY_HEAD.pack(header_length)


def result(id: int, body_length: int, header_length: int = NO_HEADER, flags: int = 0) -> bytes:
    """Everything of a RESULT before its body."""
    return PREFIX.pack(VERSION, _RESULT, flags, REPLY_HEAD.size + body_length, id) + REPLY_HEAD.pack(header_length)


def failure(id: int, error: int, message: str) -> bytes:
    text = message.encode("utf-8", "replace")[:MAX_MESSAGE]
    return prefix(Kind.FAILURE, 0, FAILURE_HEAD.size + len(text), id) + FAILURE_HEAD.pack(error) + text


def outcall(
    id: int,
    name: str,
    body_length: int,
    remaining_us: int,
    header_length: int = NO_HEADER,
    hops: int = 0,
    context: bytes = b"",
) -> bytes:
    """Everything of an OUTCALL before its body. ``name`` is ``NAME`` (undeclared) or ``NAME@V`` (shared, locked)."""
    spelled = name.encode()
    length = CALL_HEAD.size + NAME_HEAD.size + len(spelled) + len(context) + body_length
    head = CALL_HEAD.pack(remaining_us, header_length, 0, 0, hops, len(context))
    return prefix(Kind.OUTCALL, 0, length, id) + head + NAME_HEAD.pack(len(spelled)) + spelled + context


def bare(kind: Kind, id: int) -> bytes:
    """CANCEL, RETURN or GOODBYE."""
    return prefix(kind, 0, 0, id)


def read_call(payload: memoryview) -> tuple[CallHead, memoryview, memoryview]:
    """A CALL's payload → head, context, body. Raises ProtocolError."""
    if len(payload) < _CALL_BYTES:
        raise ProtocolError(f"a CALL of {len(payload)} bytes; its head alone has {CALL_HEAD.size}")
    head = _new(CallHead, CALL_HEAD.unpack_from(payload))
    rest = payload[_CALL_BYTES:]
    length = head[5]
    if not length:
        return head, _NOTHING, rest
    if length > len(rest):
        raise ProtocolError(f"a CALL whose context has {length} bytes, of {len(rest)} that follow")
    return head, rest[:length], rest[length:]


def read_outcall(payload: memoryview) -> tuple[CallHead, str, memoryview, memoryview]:
    """An OUTCALL's payload → head, callee, context, body. Raises ProtocolError."""
    if len(payload) < CALL_HEAD.size + NAME_HEAD.size:
        raise ProtocolError(f"an OUTCALL of {len(payload)} bytes; its heads alone have {CALL_HEAD.size + NAME_HEAD.size}")
    head = CallHead(*CALL_HEAD.unpack_from(payload))
    (name_length,) = NAME_HEAD.unpack_from(payload, CALL_HEAD.size)
    rest = payload[CALL_HEAD.size + NAME_HEAD.size :]
    if name_length + head.context_length > len(rest):
        raise ProtocolError(f"an OUTCALL whose name and context have {name_length + head.context_length} bytes, of {len(rest)} that follow")
    try:
        name = bytes(rest[:name_length]).decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"an OUTCALL whose name is not UTF-8: {error}") from None
    rest = rest[name_length:]
    return head, name, rest[: head.context_length], rest[head.context_length :]


def read_reply(payload: memoryview, flags: int = 0) -> tuple[int, memoryview]:
    """A REPLY's or RESULT's payload → header length, body. The header length counts bytes of the body before it was compressed,
    so that it can be larger than a compressed body. Raises ProtocolError."""
    if len(payload) < REPLY_HEAD.size:
        raise ProtocolError(f"a reply of {len(payload)} bytes; its head has {REPLY_HEAD.size}")
    (header_length,) = REPLY_HEAD.unpack_from(payload)
    body = payload[REPLY_HEAD.size :]
    if header_length != NO_HEADER and header_length > len(body) and not flags & (Flag.GZIP | Flag.DEFLATE):
        raise ProtocolError(f"a reply whose header has {header_length} bytes, of {len(body)} that follow")
    return header_length, body


def read_failure(payload: memoryview) -> tuple[int, str]:
    """A FAILURE's payload → error number, message. Raises ProtocolError."""
    if len(payload) < FAILURE_HEAD.size:
        raise ProtocolError(f"a FAILURE of {len(payload)} bytes; its head has {FAILURE_HEAD.size}")
    (error,) = FAILURE_HEAD.unpack_from(payload)
    return error, bytes(payload[FAILURE_HEAD.size :]).decode("utf-8", "replace")


class Splitter:
    """Cuts a stream into frames. Feed it what arrived; it calls ``on_frame(kind, flags, id, payload)`` for each whole frame.

    A payload that arrived whole inside one read is a view into that read: it is valid for as long as it is held, and keeps
    that read's bytes alive. One that spans reads is gathered in one bytearray of its final size: no byte is copied twice.
    """

    __slots__ = ("_filled", "_kind", "_on_frame", "_partial", "_payload", "max_payload")

    def __init__(self, on_frame: Callable[[int, int, int, memoryview], None], max_payload: int = MAX_PAYLOAD) -> None:
        self._on_frame = on_frame
        self.max_payload = max_payload
        self._partial = b""
        self._payload: bytearray | None = None
        self._filled = 0
        self._kind = (0, 0, 0)

    def feed(self, data: bytes) -> None:
        """Raises ProtocolError on a wrong version, an unknown kind or a length over the limit; the link is then unusable."""
        view = memoryview(data)
        position, end = 0, len(data)
        if self._payload is not None:
            take = min(len(self._payload) - self._filled, end)
            self._payload[self._filled : self._filled + take] = view[:take]
            self._filled += take
            if self._filled < len(self._payload):
                return
            payload, self._payload = self._payload, None
            position = take
            self._on_frame(*self._kind, memoryview(payload))
        elif self._partial:
            data = self._partial + data
            self._partial = b""
            view = memoryview(data)
            end = len(data)
        while end - position >= 16:
            version, kind, flags, length, id = PREFIX.unpack_from(view, position)
            if version != VERSION or not 1 <= kind <= 10:
                raise ProtocolError(f"a frame of version {version}, kind {kind}; this release speaks version {VERSION}, kinds 1 to 10")
            if length > self.max_payload:
                raise ProtocolError(f"a frame of {length} bytes; the limit is {self.max_payload}")
            position += 16
            if end - position >= length:
                self._on_frame(kind, flags, id, view[position : position + length])
                position += length
            else:
                self._payload = bytearray(length)
                self._filled = end - position
                self._payload[: self._filled] = view[position:]
                self._kind = (kind, flags, id)
                return
        if position < end:
            self._partial = bytes(view[position:])
