"""One infer request on the express lane and its answer: body gathered without repeated copying, answer kept until it is its turn."""

from __future__ import annotations

from collections.abc import Mapping

from functions.protocol.frames import NO_HEADER
from gateway.admit import Admitted
from workers.fleet.call import Body, Call


class Exchange:
    """Owned by one connection, in the order of its requests.

    A body that came in one read is those bytes; one of known length is gathered in a bytearray of that length; a chunked one
    grows a bytearray. A request that is refused before its body has come throws the body away.
    """

    __slots__ = (
        "_body",
        "admitted",
        "bare",
        "call",
        "expects",
        "flags",
        "head",
        "header_length",
        "keep_alive",
        "length",
        "limit",
        "names",
        "old",
        "received",
        "reply",
        "reserved",
        "target",
        "whole",
    )

    def __init__(self, keep_alive: bool, old: bool = False, target: tuple[str, str | None] = ("", None)) -> None:
        self.target = target
        """Function and selector, as the path has them."""
        self.names: Mapping[bytes, bytes] = {}
        """The request's headers by lower-case name."""
        self.keep_alive = keep_alive
        """Whether the connection goes on after this answer."""
        self.old = old
        """HTTP/1.0."""
        self.bare = False
        """A HEAD request: the answer has headers only."""
        self.expects = False
        """The client waits for ``100 Continue`` before it sends the body."""
        self.length = -1
        """Content-Length; -1: chunked."""
        self.limit = 0
        """Most bytes the body may have."""
        self.received = 0
        self.whole = False
        """The body has arrived to its end."""
        self.reserved = 0
        """Bytes held of the lane's bound on bodies."""
        self.header_length = NO_HEADER
        self.flags = 0
        self.admitted: Admitted | None = None
        self.call: Call | None = None
        """Set while the router has it."""
        self.head = b""
        """The answer's status line and headers; empty: not answered yet."""
        self.reply: Body = b""
        self._body: Body = b""

    def gather(self, chunk: bytes) -> None:
        """Take the next piece of the body. The caller has checked ``limit``; the parser gives at most ``length`` bytes."""
        start = self.received
        self.received = end = start + len(chunk)
        if start == 0 and (end == self.length or self.length < 0):
            self._body = chunk
        elif self.length >= 0:
            if start == 0:
                self._body = bytearray(self.length)
            self._body[start:end] = chunk  # type: ignore[index]  # a bytearray from the first of several pieces on
        else:
            if not isinstance(self._body, bytearray):
                self._body = bytearray(self._body)
            self._body += chunk

    def gather_whole(self, body: bytes) -> None:
        """Take the body in one piece."""
        self._body, self.received = body, len(body)

    def take_body(self) -> Body:
        """The whole body; it is no longer kept here."""
        body, self._body = self._body, b""
        return body

    @property
    def repeatable(self) -> bool:
        """Whether a request with the same head may be taken without parsing it. Not one that has its answer already: it may have been
        refused for what the head says, before all of the head was looked at."""
        return self.whole and not self.head and self.keep_alive and not self.old and not self.bare and not self.expects and self.length > 0

    @property
    def missing(self) -> int | None:
        """Bytes of the body that have not come; None where only the client knows."""
        if self.whole:
            return 0
        return self.length - self.received if self.length >= 0 else None


_END = b"\r\n\r\n"


class Known:
    """The head of a request that was parsed, byte for byte, and what it said."""

    __slots__ = ("_flags", "_header_length", "_length", "_names", "_target", "head", "size")

    def __init__(self, head: bytes, exchange: Exchange) -> None:
        self.head = head
        self.size = len(head) + exchange.length
        """Bytes of a whole request with this head."""
        self._target, self._names, self._length = exchange.target, exchange.names, exchange.length
        self._header_length, self._flags = exchange.header_length, exchange.flags

    @classmethod
    def of(cls, exchange: object, data: bytes) -> Known | None:
        """What ``data``, a read that began and ended with one request, lets one recognise; None for a request that is not of the
        plain kind."""
        if not isinstance(exchange, Exchange) or not exchange.repeatable:
            return None
        size = len(data) - exchange.length
        if data.find(_END) != size - len(_END):
            return None
        return cls(data[:size], exchange)

    def exchange(self, data: bytes) -> Exchange:
        """The exchange of a whole request that has this head."""
        made = Exchange(True, False, self._target)
        made.names, made.length = self._names, self._length
        made.header_length, made.flags, made.whole = self._header_length, self._flags, True
        made.gather_whole(data[len(self.head) :])
        return made
