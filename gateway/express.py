"""The express lane: infer requests are taken at the HTTP parser's callbacks and never become a task, a future or an ASGI call.

Everything else on the same connection goes to FastAPI through uvicorn's own code. ``_line`` holds the connection's unanswered
requests in their order, of both kinds; only its head may write, so replies keep the order under pipelining:

    parser ─▶ Exchange ──▶ router ──▶ reply ──▶ waits here until it is the head ──▶ socket
         └──▶ uvicorn's cycle, started when it becomes the head ──────────────────▶ socket

Infer requests that follow each other run at the same time; one that follows another kind of request waits for it, since that one
may change what the name means. A connection has one timer for all its deadlines: idle, header, body, send, linger.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from functions.errors import DeadlineExceeded, DespinaError, Draining, InternalError, InvalidRequest, QueueFull, TooLarge, Unsupported
from functions.protocol.frames import NO_HEADER
from gateway import heads, statuses
from gateway.admit import Admitted, Facts, NotRead
from gateway.exchange import Exchange, Known
from gateway.lane import Lane
from workers.fleet.call import Call

_JOIN_BYTES = 65_536
"""Replies up to this size are joined with their head: one small copy is cheaper than a second buffer in the transport."""
_SWALLOW_BYTES = 65_536
"""A refused request's body up to this size is read and thrown away, and the connection goes on; a longer one ends it."""
_NEVER = float("inf")
log = logging.getLogger(__name__)


class Phase(Enum):
    """Where the parser stands."""

    BETWEEN = 0
    HEAD = 1
    BODY = 2


class _Unanswered:
    """Stands for "somebody is ahead" where uvicorn looks at the cycle before."""

    response_complete = False


class Express(HttpToolsProtocol):
    """One connection. uvicorn makes it (``Config(http=partial(Express, lane=lane))``) and calls ``shutdown`` when it drains."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        lane: Lane,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._lane = lane
        self._limits = lane.limits
        self._most_header_bytes = lane.limits.header_bytes
        self._most_headers = lane.limits.header_count
        self._line: deque[Exchange | RequestResponseCycle] = deque()
        self._cycles = 0
        """How many of the line are uvicorn's."""
        self._receiving: Exchange | None = None
        self._held = 0
        """Whole requests that have not been handed to the router yet."""
        self._flushing = False
        self._parked = 0
        """Requests that wait for a version record; nothing is read meanwhile."""
        self._deaf = False
        """No further request is taken: which answer is the last of this connection has been decided."""
        self._lingers = False

        self._phase = Phase.BETWEEN
        self._since = 0.0
        """When it was first seen that the message under way needs more than one read; 0: it has not."""
        self._head_bytes = 0
        self._body_bytes = 0
        self._unsent = 0
        self._begun = 0
        """Messages that began in the read under way."""
        self._known: Known | None = None
        """The last infer request that came whole in one read: clients repeat themselves, and the same bytes mean the same."""

        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        self._due = _NEVER

    # What the transport and the server call

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self._limits.write_buffer_kb << 10)
        if len(self.connections) > self._limits.connections:
            self._refuse(QueueFull(f"this server holds {self._limits.connections} connections already"))
        elif self._lane.draining:
            self._refuse(Draining("this server is shutting down"))
        else:
            self._watch(self.loop.time() + self._limits.keep_alive_s)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._deaf = True
        self._receiving = None
        line, self._line = self._line, deque()
        for entry in line:
            if isinstance(entry, Exchange):
                if entry.call is not None:
                    self._lane.router.cancel(entry.call)
                    entry.call = None
                self._lane.release(entry)
            else:
                entry.disconnected = True
                entry.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        known = self._known
        if known is not None and len(data) == known.size and self._phase is Phase.BETWEEN and data.startswith(known.head):
            self._repeat(known, data)
            return
        between, in_head = self._phase is Phase.BETWEEN, self._phase is Phase.HEAD
        self._begun = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # Served as if no upgrade had been asked for; such a request is the last of its connection.
        except httptools.HttpParserError as error:
            self._parser_refused(error)
            return
        if self._phase is Phase.BETWEEN or self._deaf:
            if between and self._begun == 1 and self._line and not self._deaf:
                self._known = Known.of(self._line[-1], data)
            return
        if in_head and self._phase is Phase.HEAD:
            # The parser keeps an unfinished header to itself: count what it was fed.
            self._head_bytes += len(data)
            if self._head_bytes > self._most_header_bytes:
                self._refuse(self._head_too_large(), 431)
                return
        if not self._since:
            self._since = self.loop.time()
        self._watch(self._rest_due())

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()
        self._unsent = self.transport.get_write_buffer_size()
        self._watch(self.loop.time() + self._limits.send_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._flush()

    def shutdown(self) -> None:
        """Answer what has been taken, then close."""
        if self._line:
            self._line[-1].keep_alive = False
            if self._phase is not Phase.BODY:
                self._deaf = True
        else:
            self.transport.close()

    # What the parser calls

    def on_message_begin(self) -> None:
        self._begun += 1
        self.url = b""
        self.headers = []
        self._head_bytes = self._body_bytes = 0
        self._since = 0.0
        self._phase = Phase.HEAD

    def on_url(self, url: bytes) -> None:
        self.url += url
        self._head_bytes += len(url)
        if self._head_bytes > self._most_header_bytes:
            raise self._head_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self.headers
        headers.append((name.lower(), value))
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._most_header_bytes or len(headers) > self._most_headers:
            raise self._head_too_large()

    def on_headers_complete(self) -> None:
        if self._deaf:
            return
        self._phase = Phase.BODY
        url = self.url
        if url[:1] != b"/" and url != b"*":
            url = httptools.parse_url(url).path or b"/"
        target = self._lane.target(url)
        if target is None:
            self._begin_cycle()
        else:
            self._begin(target)

    def on_body(self, body: bytes) -> None:
        exchange = self._receiving
        self._body_bytes += len(body)
        if exchange is None:
            if not self._deaf:
                super().on_body(body)
        elif not exchange.head:
            if exchange.length < 0 and exchange.admitted is not None:
                try:
                    self._hold(exchange, exchange.received + len(body))
                except DespinaError as error:
                    self._fail(exchange, error)
                    return
            exchange.gather(body)

    def on_message_complete(self) -> None:
        if self._deaf:
            return
        self._phase = Phase.BETWEEN
        exchange = self._receiving
        if exchange is None:
            super().on_message_complete()
            if self._line and not self._line[-1].keep_alive:
                self._deaf = True
            return
        self._receiving = None
        exchange.whole = True
        if not exchange.keep_alive:
            self._deaf = True
        if exchange.head:
            self._flush()
        elif exchange.admitted is not None:
            self._take(exchange, exchange.admitted)

    # Infer requests

    def _repeat(self, known: Known, data: bytes) -> None:
        """A request with the head of the one before, whole in one read: what its headers say is known, and nothing is parsed. What its
        name means is asked again."""
        exchange = known.exchange(data)
        self._line.append(exchange)
        try:
            admitted = self._admit(exchange)
        except DespinaError as error:
            self._fail(exchange, error)
        except NotRead as missing:
            self._park(exchange, missing)
        else:
            self._take(exchange, admitted)
        if len(self._line) >= self._limits.pipelined:
            self.flow.pause_reading()

    def _begin(self, target: tuple[str, str | None]) -> None:
        parser = self.parser
        exchange = Exchange(parser.should_keep_alive(), parser.get_http_version() == "1.0", target)
        self._line.append(exchange)
        self._receiving = exchange
        exchange.names = names = dict(self.headers)
        if b"transfer-encoding" not in names:
            exchange.length = int(names.get(b"content-length", b"0"))
        exchange.expects = names.get(b"expect", b"").lower() == b"100-continue"
        try:
            method = parser.get_method()
            if method != b"POST":
                exchange.bare = method == b"HEAD"
                self._fail(exchange, Unsupported("Method Not Allowed"), 405)
                return
            if parser.should_upgrade():
                self._fail(exchange, InvalidRequest("an infer request cannot ask for a protocol upgrade"), last=True)
                return
            if len(names) != len(self.headers):
                heads.refuse_repeated(self.headers)
            exchange.flags = heads.coding_flags(names)
            exchange.header_length = heads.header_length(names)
            self._admit(exchange)
        except DespinaError as error:
            self._fail(exchange, error)
            return
        except NotRead as missing:
            self._park(exchange, missing)
            return
        if exchange.expects:
            self._ask_for_body(exchange)
        if len(self._line) >= self._limits.pipelined:
            self.flow.pause_reading()

    def _admit(self, exchange: Exchange) -> Admitted:
        """Resolve the name and check what the headers say about the body, before any of it is read. Raises DespinaError."""
        lane = self._lane
        name, selector = exchange.target
        exchange.admitted = admitted = lane.gate.infer(exchange.names, name, selector)
        header_length = exchange.header_length
        exchange.limit = admitted.facts.body_bytes
        if header_length == NO_HEADER:
            exchange.limit = min(exchange.limit, lane.json_bytes)
        elif header_length > lane.json_bytes:
            raise TooLarge(f"a JSON header of {header_length} bytes; the limit is {lane.json_bytes}")
        self._hold(exchange, exchange.received if exchange.length < 0 else exchange.length)
        return admitted

    def _hold(self, exchange: Exchange, size: int) -> None:
        """Let a body have ``size`` bytes in all. Raises TooLarge, QueueFull."""
        if size > exchange.limit:
            more = "more than " if exchange.length < 0 else ""
            raise TooLarge(f"a body of {more}{size} bytes; the limit of this request is {exchange.limit}")
        self._lane.reserve(exchange, size - exchange.reserved)

    def _park(self, exchange: Exchange, missing: NotRead) -> None:
        """Wait for the record of a version that this process meets for the first time."""
        self._parked += 1
        self.flow.pause_reading()
        self._lane.read(self.loop, missing.ref, partial(self._record_read, exchange))

    def _record_read(self, exchange: Exchange, error: DespinaError | None) -> None:
        """The record that an exchange waited for is here: go on as if it had always been."""
        self._parked -= 1
        if exchange not in self._line or exchange.head:
            return  # The client has left, or its request was refused meanwhile.
        try:
            if error is not None:
                raise error
            self._admit(exchange)
        except DespinaError as refusal:
            self._fail(exchange, refusal)
            return
        if exchange.whole:
            self._held += 1
        self._flush()

    def _ask_for_body(self, exchange: Exchange) -> None:
        """Send ``100 Continue``, when it is this request's turn on the wire and it is still of use."""
        if self._line[0] is exchange and not exchange.received and not exchange.whole:
            exchange.expects = False
            self.transport.write(heads.CONTINUE)

    def _submit(self, exchange: Exchange, admitted: Admitted) -> None:
        facts = admitted.facts
        exchange.call = call = Call(
            facts.ref,
            exchange.take_body(),
            exchange.header_length,
            exchange.flags,
            deadline=admitted.deadline,
            on_reply=partial(self._replied, exchange, facts),
            on_failure=partial(self._failed, exchange),
        )
        self._lane.router.submit(call)

    def _take(self, exchange: Exchange, admitted: Admitted) -> None:
        """A whole, admitted request: hand it over, or let it wait while another kind of request is ahead or enough are running."""
        if self._cycles or len(self._line) > self._limits.pipelined:
            self._held += 1
        else:
            self._submit(exchange, admitted)

    def _submit_held(self) -> bool:
        """Hand over those that waited and need not any longer; whether there were any. A request ahead may have moved a tag, so
        their names are resolved again; their deadlines stay."""
        ready: list[tuple[Exchange, float]] = []
        for entry in islice(self._line, self._limits.pipelined):
            if not isinstance(entry, Exchange):
                break
            if entry.whole and entry.admitted is not None and entry.call is None and not entry.head:
                ready.append((entry, entry.admitted.deadline))
        for exchange, deadline in ready:
            self._held -= 1
            try:
                admitted = self._admit(exchange)
            except DespinaError as error:
                self._fail(exchange, error)
            except NotRead as missing:
                self._park(exchange, missing)
            else:
                admitted.deadline = min(deadline, admitted.deadline)
                self._submit(exchange, admitted)
        return bool(ready)

    def _replied(self, exchange: Exchange, facts: Facts, _call: Call, header_length: int, body: memoryview, flags: int) -> None:
        exchange.call = None
        lane = self._lane
        lane.release(exchange)
        lane.count(exchange, "ok")
        connection = b"" if exchange.keep_alive and not exchange.old else heads.connection_line(exchange.keep_alive, exchange.old)
        exchange.head = heads.success(facts, header_length, len(body), flags, connection)
        exchange.reply = body
        self._flush()

    def _failed(self, exchange: Exchange, _call: Call, error: DespinaError) -> None:
        exchange.call = None
        self._fail(exchange, error)

    def _fail(self, exchange: Exchange, error: DespinaError, status: int = 0, *, last: bool = False) -> None:
        """Decide an exchange's answer. ``last`` ends the connection with it, as does a body too long to be thrown away."""
        if isinstance(error, InternalError):
            log.error("infer_failed", exc_info=error)
        missing = exchange.missing
        if last or missing is None or missing > _SWALLOW_BYTES or (missing and exchange.expects):
            exchange.keep_alive = False
            self._deaf = self._deaf or not exchange.whole
            self._receiving = None
        exchange.take_body()
        self._lane.release(exchange)
        self._lane.count(exchange, error.code)
        facts = exchange.admitted.facts if exchange.admitted is not None else None
        body = statuses.body(error)
        connection = heads.connection_line(exchange.keep_alive, exchange.old)
        exchange.head = heads.failure(error, facts, len(body), connection, status)
        exchange.reply = b"" if exchange.bare else body
        if exchange.whole or not exchange.keep_alive:
            self._flush()

    # Requests of other kinds: uvicorn's own way, in our line

    def _begin_cycle(self) -> None:
        headers, url = self.headers, self.url
        super().on_message_begin()
        self.headers.extend(headers)
        self.url = url
        self.expect_100_continue = any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
        # uvicorn starts a cycle at once when the one before is complete; else it waits in self.pipeline, and nothing is read.
        self.cycle = cast(RequestResponseCycle, _Unanswered if self._line else None)
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False
        self._line.append(self.cycle)
        self._cycles += 1

    def on_response_complete(self) -> None:
        """A cycle has written its answer; it was the head of the line."""
        self.server_state.total_requests += 1
        cycle = self._line.popleft() if self._line else None
        self._cycles -= cycle is not None
        if self.transport.is_closing():
            self._watch(self.loop.time() + self._limits.send_s)
        elif self._phase is Phase.BODY and not self._line:
            self._linger()  # Answered without reading its body: what follows cannot be told from it.
        else:
            self._flush()

    def _cut_cycle(self, error: DespinaError, status: int) -> None:
        """End the cycle whose body is arriving: it never will."""
        cycle = self.cycle
        self._deaf = True
        if cycle.response_started or cycle.response_complete:
            self.transport.abort()
            return
        self._line.pop()
        self._cycles -= 1
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
        cycle.disconnected = True
        cycle.message_event.set()
        self._refuse(error, status)

    # Writing

    def _flush(self) -> None:
        """Write the answers that are ready and whose turn it is; then start, ask for or wait for what comes next."""
        if self._flushing:
            return  # Called from within: what was submitted below answered at once, and the loop below writes it.
        self._flushing = True
        try:
            last = self._write_ready()
            while last is None and self._held and self._submit_held():
                last = self._write_ready()
        finally:
            self._flushing = False
        if last is not None:
            self._end(last)
            return
        if self.flow.write_paused:
            return
        if not self._line:
            self._due = self.loop.time() + self._limits.keep_alive_s
            if self._timer is None:
                self._watch(self._due)
        if self.flow.read_paused and len(self._line) < self._limits.pipelined and not self._parked:
            self.flow.resume_reading()

    def _write_ready(self) -> Exchange | None:
        """One write for all answers from the head of the line on; the exchange that ends the connection, if one of them does."""
        line = self._line
        pieces: list[bytes | bytearray | memoryview] = []
        last: Exchange | None = None
        while line and last is None and not self.flow.write_paused:
            entry = line[0]
            if not isinstance(entry, Exchange):
                if self.pipeline and self.pipeline[-1][0] is entry:
                    self._start_asgi_task(*self.pipeline.pop())
                break
            if not entry.head or (entry.keep_alive and not entry.whole):
                if entry.expects and not entry.head and entry.admitted is not None:
                    self._ask_for_body(entry)
                break
            line.popleft()
            self.server_state.total_requests += 1
            if len(entry.reply) <= _JOIN_BYTES:
                pieces.append(entry.head + entry.reply)
            else:
                pieces += (entry.head, entry.reply)
            if not entry.keep_alive:
                last = entry
        if len(pieces) == 1:
            self.transport.write(pieces[0])
        elif pieces:
            self.transport.writelines(pieces)
        return last

    def _refuse(self, error: DespinaError, status: int = 0) -> None:
        """Answer what is not, or not yet, a request, in its turn; and end the connection with it."""
        exchange = Exchange(keep_alive=False)
        self._line.append(exchange)
        self._fail(exchange, error, status, last=True)

    def _end(self, last: Exchange) -> None:
        self._deaf = True
        if last.whole:
            self.transport.close()
            self._watch(self.loop.time() + self._limits.send_s)
        else:
            self._linger()

    def _linger(self) -> None:
        """Close so that the client can read the answer: a socket closed with unread bytes is reset, and the reset may overtake the
        answer. So the sending side ends first, and what still comes is thrown away for a moment."""
        self._deaf = self._lingers = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._watch(self.loop.time() + self._limits.linger_s)

    # Refusals of the parser and of the clock

    def _head_too_large(self) -> TooLarge:
        return TooLarge(
            f"a request line and headers of more than {self._limits.header_bytes} bytes, or more than {self._limits.header_count} headers"
        )

    def _parser_refused(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
        if isinstance(cause, TooLarge):
            self._stop_receiving(cause, 431)
        elif cause is not None:
            fault = InternalError(f"while reading a request: {cause!r}")
            fault.__cause__ = cause
            self._stop_receiving(fault, 500)
        else:
            self._stop_receiving(InvalidRequest(f"not a valid HTTP/1.1 request: {error}"), 400)

    def _stop_receiving(self, error: DespinaError, status: int) -> None:
        """Whatever is arriving cannot be taken to its end."""
        if self._phase is not Phase.BODY:
            self._refuse(error, status)
        elif self._receiving is None:
            self._cut_cycle(error, status)
        elif self._receiving.head:
            self._receiving.keep_alive = False
            self._deaf = True
            self._flush()
        else:
            self._fail(self._receiving, error, status, last=True)

    def _rest_due(self) -> float:
        """Until when the rest of the message that is arriving must be here."""
        if self._phase is Phase.HEAD:
            return self._since + self._limits.header_s
        return self._since + self._limits.body_s + self._body_bytes / self._limits.body_bytes_per_s

    def _watch(self, due: float) -> None:
        self._due = due
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self.loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, _NEVER
        now = self.loop.time()
        if now < self._due:
            self._watch(self._due)
        elif self.transport.is_closing():
            self.transport.abort()
        elif self._lingers:
            self.transport.close()
            self._watch(now + self._limits.send_s)
        elif self.flow.write_paused:
            self._check_reader(now)
        elif self._phase is not Phase.BETWEEN and not self._deaf:
            self._check_sender(now)
        elif not self._line:
            self.transport.close()
            self._watch(now + self._limits.send_s)

    def _check_reader(self, now: float) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._unsent = unsent
            self._watch(now + self._limits.send_s)
        else:
            self.transport.abort()

    def _check_sender(self, now: float) -> None:
        due = self._rest_due()
        if now < due:
            self._watch(due)
        elif self.flow.read_paused:
            self._since += now - due + self._limits.body_s  # We are the slow ones.
            self._watch(now + self._limits.body_s)
        else:
            self._stop_receiving(DeadlineExceeded(f"the request did not arrive within {now - self._since:.0f} s"), 408)
