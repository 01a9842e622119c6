"""The replica's sockets: the listener that routers dial, their links, and the one turn that reads and writes them all.

Whoever needs something from a socket leads one turn: the main thread between batches, and in the middle of a batch any thread
that waits for an outcall or asks whether its caller is still there. One leads at a time, the others wait for the end of its
turn. What a turn reads is only put down (``arrived``, an outcall's answer, ``Call.gone``): nothing is run in it. What is to be written is
posted, from any thread, and written by the next turn, all of one link's frames at once.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

from functions.errors import DespinaError, ProtocolError, from_wire
from functions.protocol import frames
from functions.protocol.frames import Kind
from workers.process.call import Call
from workers.process.layout import shares
from workers.process.lead import Lead
from workers.process.link import Link
from workers.process.log import log

_CALL = int(Kind.CALL)
HELLO_S = 10.0
"""How long a connection may take to say HELLO."""
_FINE_S = 0.020
MAX_LINKS = 256
"""Open connections at one time; more wait in the listener's backlog."""


class Door:
    """``on_result(id, payload)`` gets what outcalls are answered, ``on_failure(link, id, error)`` what they fail with (id 0: all that
    went out by that link)."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        token: bytes,
        digest: bytes,
        epoch: int,
        credit: int,
        timeout_s: float,
        body_bytes: int,
        on_result: Callable[[int, memoryview], None],
        on_failure: Callable[[Link, int, DespinaError], None],
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._token, self._digest, self._epoch = token, digest, epoch
        self._credit, self._timeout_s, self._body_bytes = credit, timeout_s, body_bytes
        self._on_result, self._on_failure = on_result, on_failure
        self._links: dict[int, Link] = {}
        self._numbers = 0
        self._listening = True
        self._strangers = 0
        """Links that have not said HELLO yet."""
        self.arrived: deque[Call] = deque()
        """Calls that were read and not taken by the scheduler yet, oldest first."""
        self.looked_s = 0.0
        """time.monotonic() of the last look at the sockets."""
        self.closing = False
        self._posted: deque[tuple[Link, Sequence[bytes], Call | None]] = deque()
        self._lead = Lead()
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(listener.fileno(), select.EPOLLIN)
        self._epoll.register(self._woken, select.EPOLLIN)

    @property
    def waker(self) -> int:
        """A descriptor that ends the running turn when a byte is written to it (signals)."""
        return self._waker

    @property
    def settled(self) -> bool:
        """Nothing is left to be written."""
        return not self._posted and not any(link.unsent_bytes for link in self._links.values())

    def turn(self, timeout_s: float | None) -> None:
        """Write what was posted, wait up to so long (None: until something happens) for a socket, read what is there."""
        self._lead.take()
        self._take_turn(timeout_s)

    def glance(self) -> None:
        """A turn that does not wait, unless another thread leads one already."""
        if self._lead.try_take():
            self._take_turn(0)

    def wait(self, done: Callable[[], bool], deadline: float) -> bool:
        """Lead turns, or follow those of others, until ``done``; False if ``deadline`` (time.monotonic()) came first."""
        while not done():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if self._lead.take(left_s, done):
                # Never negative: that would mean for ever to epoll.
                self._take_turn(max(0.0, deadline - time.monotonic()))
        return True

    def answer(self, call: Call, parts: Sequence[bytes]) -> None:
        """Post the frame that ends ``call``; from any thread."""
        self._posted.append((call.link, parts, call))

    def post(self, link: Link, parts: Sequence[bytes]) -> None:
        """Post a frame that answers no call; from any thread."""
        self._posted.append((link, parts, None))

    def wake(self) -> None:
        """End a turn that waits, so that what was posted is written."""
        try:
            os.write(self._waker, b"\0")
        except BlockingIOError:
            return  # the pipe is full of wakes already

    def goodbye(self) -> None:
        """Tell every router to send no more, and take no new links. Called by the main thread."""
        self.closing = True
        self._epoll.unregister(self._listener.fileno())
        self._listener.close()
        for link in self._links.values():
            if link.number:
                self.post(link, (frames.bare(Kind.GOODBYE, 0),))

    def close(self) -> None:
        for link in list(self._links.values()):
            self._drop(link)
        self._epoll.close()
        os.close(self._woken)
        os.close(self._waker)

    def _take_turn(self, timeout_s: float | None) -> None:
        """One turn, by the thread that has the lead, which it gives back."""
        try:
            if self._posted:
                self._write()
            if timeout_s is not None and 0 < timeout_s < _FINE_S:
                # epoll rounds up to whole milliseconds, and batches wait for tens of microseconds.
                select.select((self._epoll,), (), (), timeout_s)
                timeout_s = 0
            events = self._epoll.poll(timeout_s, 64)
            self.looked_s = now = time.monotonic()
            for descriptor, mask in events:
                link = self._links.get(descriptor)
                if link is not None:
                    self._serve(link, mask)
                elif descriptor == self._woken:
                    os.read(self._woken, 4096)
                else:
                    self._accept(now)
            if self._strangers:
                self._expire(now)
        finally:
            self._lead.give()

    def _write(self) -> None:
        touched: dict[Link, None] = {}
        while self._posted:
            link, parts, call = self._posted.popleft()
            if link.closed:
                continue
            if call is not None:
                link.calls.pop(call.id, None)
            link.put(parts, call is not None)
            touched[link] = None
        for link in touched:
            if not link.watched:
                self._flush(link)

    def _flush(self, link: Link) -> None:
        try:
            clear = link.flush()
        except OSError as error:
            self._drop(link, error)
            return
        if clear == link.watched:
            link.watched = not clear
            self._epoll.modify(link.socket.fileno(), select.EPOLLIN if clear else select.EPOLLIN | select.EPOLLOUT)

    def _serve(self, link: Link, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._flush(link)
        if link.closed or not mask & ~select.EPOLLOUT:
            return
        try:
            if not link.receive():
                self._drop(link)
        except (ProtocolError, OSError) as error:
            self._drop(link, error)

    def _accept(self, now: float) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if not isinstance(error, (BlockingIOError, InterruptedError, ConnectionAbortedError)):
                # Most likely the author's code has taken all file descriptors: look again when a link is closed.
                log("accept_failed", error=str(error))
                self._listen(False)
            return
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(connection, self._on_frame, now)
        self._links[connection.fileno()] = link
        self._strangers += 1
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        if len(self._links) >= MAX_LINKS:
            self._listen(False)

    def _listen(self, on: bool) -> None:
        if on != self._listening:
            self._listening = on
            self._epoll.modify(self._listener.fileno(), select.EPOLLIN if on else 0)

    def _expire(self, now: float) -> None:
        for link in [link for link in self._links.values() if not link.number and now - link.opened_s > HELLO_S]:
            self._drop(link, ProtocolError(f"no HELLO within {HELLO_S:.0f} s"))

    def _drop(self, link: Link, why: Exception | None = None) -> None:
        if link.closed:
            return
        if why is not None:
            log("link_closed", link=link.number, reason=str(why))
        descriptor = link.socket.fileno()
        self._epoll.unregister(descriptor)
        del self._links[descriptor]
        link.close()
        if not self.closing:
            self._listen(True)
        if not link.number:
            self._strangers -= 1
        else:
            self._on_failure(link, 0, ProtocolError("the link to the router broke"))
            self._announce()

    def _on_frame(self, link: Link, kind: int, flags: int, id: int, payload: memoryview) -> None:
        if not link.number:
            self._greet(link, kind, payload)
        elif kind == _CALL:
            head, context, body = frames.read_call(payload)
            call = Call(self, link, id, flags, head, context, body, time.monotonic(), self._timeout_s)
            link.accept(call)
            self.arrived.append(call)
        elif kind == Kind.CANCEL:
            cancelled = link.calls.get(id)
            if cancelled is not None:
                cancelled.gone = True
        elif kind == Kind.RESULT:
            self._on_result(id, payload)
        elif kind == Kind.FAILURE:
            wire, message = frames.read_failure(payload)
            self._on_failure(link, id, from_wire(wire, message))
        else:
            raise ProtocolError(f"a router does not send frames of kind {kind}")

    def _greet(self, link: Link, kind: int, payload: memoryview) -> None:
        if kind != Kind.HELLO or len(payload) != frames.HELLO.size:
            raise ProtocolError(f"a link began with a frame of kind {kind}, {len(payload)} bytes, not with HELLO")
        token, digest, epoch = frames.HELLO.unpack(payload)
        if not hmac.compare_digest(token, self._token):
            raise ProtocolError("HELLO with a wrong token")
        if digest != self._digest or epoch != self._epoch:
            raise ProtocolError(f"HELLO for another version: epoch {epoch} instead of {self._epoch}, or another digest")
        if self.closing:
            raise ProtocolError("HELLO while draining")
        self._numbers += 1
        self._strangers -= 1
        link.greet(self._numbers, self._body_bytes)
        self._announce()

    def _announce(self) -> None:
        """Divide the credit anew and tell each link whose share has changed."""
        links = [link for link in self._links.values() if link.number]
        for link, share in zip(links, shares(self._credit, len(links)), strict=True):
            if share != link.share:
                link.share, link.allowed = share, max(share, link.allowed)
                self.post(link, (frames.ready(share, os.getpid(), link.number),))
