"""One router's connection: what it has asked, what is still to be written to it. Only the door's leader touches a link."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from functions.errors import ProtocolError
from functions.protocol import frames
from workers.process.call import Call

CLOGGED_BYTES = 64 << 20
"""Unsent bytes from which on a link's waiting calls are not started: a router that does not read stops only itself."""
JOINED_BYTES = 64 << 10
"""Parts shorter than this are copied together, to be written by one call."""
_READ_BYTES = 256 << 10


class Link:
    """``number`` is 0 until its HELLO was accepted. ``allowed`` is the largest credit ever announced to it."""

    def __init__(self, connection: socket.socket, on_frame: Callable[[Link, int, int, int, memoryview], None], opened_s: float) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.opened_s = opened_s
        self.number = 0
        self.share = self.allowed = 0
        self.calls: dict[int, Call] = {}
        """By frame id: accepted, and not answered yet."""
        self.unsent_bytes = 0
        self.closed = False
        self.watched = False
        """Whether the door waits for this link to become writable."""
        self._splitter = frames.Splitter(partial(on_frame, self), frames.HELLO.size)
        self._outbound: deque[tuple[memoryview, int]] = deque()
        self._unsent_answers = 0
        self._begun_answers = 0
        self._joined: list[bytes] = []
        self._joined_answers = 0

    @property
    def clogged(self) -> bool:
        return self.unsent_bytes > CLOGGED_BYTES

    def greet(self, number: int, body_bytes: int) -> None:
        """Its HELLO was good: from now on it may send frames of a whole body."""
        self.number = number
        self._splitter.max_payload = body_bytes + (1 << 20)

    def accept(self, call: Call) -> None:
        """Take a call in. Raises ProtocolError when the router spends credit it does not have, or reuses an id.

        A call uses credit until its answer is with the kernel. Of the chunk that is half written, some answers may already be with
        the router, so none of that chunk's is held against it."""
        if call.id in self.calls:
            raise ProtocolError(f"call {call.id} was sent again before it was answered")
        if len(self.calls) + self._unsent_answers - self._begun_answers >= self.allowed:
            raise ProtocolError(f"a call beyond the credit of {self.allowed}")
        self.calls[call.id] = call

    def receive(self) -> bool:
        """Read what is there, once; False at the end of the stream. Raises ProtocolError on broken frames, OSError on a broken link."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return True
        if not data:
            return False
        self._splitter.feed(data)
        return True

    def put(self, parts: Sequence[bytes], answers: int) -> None:
        """Add bytes to be written; ``answers`` of calls (0 or 1) end with them."""
        for part in parts:
            size = len(part)
            self.unsent_bytes += size
            if size < JOINED_BYTES:
                self._joined.append(part)
            else:
                self._close_joined()
                self._outbound.append((memoryview(part), 0))
        self._joined_answers += answers
        self._unsent_answers += answers

    def flush(self) -> bool:
        """Write as much as the kernel takes; True when nothing is left. Raises OSError on a broken link."""
        self._close_joined()
        while self._outbound:
            chunk, answers = self._outbound[0]
            try:
                sent = self.socket.send(chunk)
            except (BlockingIOError, InterruptedError):
                return False
            self.unsent_bytes -= sent
            if sent < len(chunk):
                self._outbound[0] = (chunk[sent:], answers)
                self._begun_answers = answers
            else:
                self._outbound.popleft()
                self._unsent_answers -= answers
                self._begun_answers = 0
        return True

    def close(self) -> None:
        self.closed = True
        # A child that the author's code forked may hold the descriptor too: closing ours would not end the connection.
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for call in self.calls.values():
            call.gone = True
        self.calls.clear()
        self._outbound.clear()
        self._joined.clear()

    def _close_joined(self) -> None:
        if self._joined or self._joined_answers:
            self._outbound.append((memoryview(b"".join(self._joined)), self._joined_answers))
            self._joined.clear()
            self._joined_answers = 0
