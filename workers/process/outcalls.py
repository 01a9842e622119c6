"""Calls to functions outside the closure: out over the link that the causing call came by, back as RESULT or FAILURE."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from functions.errors import DeadlineExceeded, DespinaError, InternalError
from functions.protocol import frames
from functions.protocol.values import Request, Response
from workers.process.call import Call
from workers.process.door import Door
from workers.process.link import Link
from workers.process.remote import request_body, response


class Outcall:
    """One call that is out."""

    __slots__ = ("answer", "call", "deadline", "id", "name")

    def __init__(self, id: int, name: str, call: Call, deadline: float) -> None:
        self.id, self.name, self.call, self.deadline = id, name, call, deadline
        self.answer: Response | None = None

    def answered(self) -> bool:
        return self.answer is not None


class Outcalls:
    """Set ``door`` before the first call. Any thread may ask; answers are put down by whoever leads the door's turn."""

    door: Door

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._out: dict[int, Outcall] = {}

    def ask(self, name: str, requests: Sequence[Request]) -> list[Response]:
        """Answers of ``name`` (``NAME`` or ``NAME@V``), one a request, all out at the same time. Errors come in the responses."""
        return [self._wait(each) if isinstance(each, Outcall) else each for each in [self._send(name, request) for request in requests]]

    def on_result(self, id: int, payload: memoryview) -> None:
        """A RESULT was read. One that nobody waits for any more is dropped. Raises ProtocolError when it makes no sense."""
        outcall = self._out.pop(id, None)
        if outcall is not None:
            try:
                outcall.answer = response(*frames.read_reply(payload))
            except DespinaError as error:
                outcall.answer = Response(error=error)
                raise

    def on_failure(self, link: Link, id: int, error: DespinaError) -> None:
        """A FAILURE was read; id 0: the link is gone, and with it all that went out by it."""
        for each in [each for each in list(self._out.values()) if each.call.link is link and id in (0, each.id)]:
            del self._out[each.id]
            each.answer = Response(error=error)

    def _send(self, name: str, request: Request) -> Outcall | Response:
        call: Call | None = request.origin
        if call is None:
            return Response(error=InternalError(f"a call to {name}, which is not part of this version's lock, has no link to go out by"))
        if call.link.closed:
            return Response(error=InternalError(f"the link that a call to {name} would go out by is gone"))
        try:
            parts, header_length = request_body(request)
        except DespinaError as error:
            return Response(error=error)
        deadline = min(call.deadline, request.deadline or call.deadline)
        left_us = int((deadline - time.monotonic()) * 1e6)
        if left_us <= 0:
            return Response(error=DeadlineExceeded(f"no time was left for the call to {name}"))
        outcall = Outcall(next(self._ids), name, call, deadline)
        self._out[outcall.id] = outcall
        size_bytes = sum(map(len, parts))
        head = frames.outcall(outcall.id, name, size_bytes, left_us, header_length, request.hops, bytes(call.context))
        self.door.post(call.link, (head, *parts))
        self.door.wake()
        return outcall

    def _wait(self, outcall: Outcall) -> Response:
        if not self.door.wait(outcall.answered, outcall.deadline):
            self._out.pop(outcall.id, None)
            return Response(error=DeadlineExceeded(f"{outcall.name} did not answer before the caller's deadline"))
        assert outcall.answer is not None
        return outcall.answer
