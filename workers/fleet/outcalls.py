"""Calls that a replica makes to functions outside its closure: an OUTCALL becomes an ordinary call, its end a RESULT or FAILURE."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from functions.errors import DespinaError, InvalidRequest, ProtocolError, QueueFull
from functions.graph import MAX_DEPTH
from functions.names import Ref
from functions.protocol import frames
from workers.fleet.call import Call
from workers.fleet.links import Link

MAX_OUTCALLS = 1024
"""Outcalls of one link that may run at a time: a replica that lies about its hops must not fill the router alone."""


class Outcalls:
    """The outcalls of one link. ``resolve(caller, name)`` turns ``NAME`` or ``NAME@V`` into a version, or raises what the caller is
    told."""

    def __init__(
        self, link: Link, caller: Ref, resolve: Callable[[Ref, str], Ref], submit: Callable[[Call], None], cancel: Callable[[Call], None]
    ) -> None:
        self._link = link
        self._caller = caller
        self._resolve = resolve
        self._submit = submit
        self._cancel = cancel
        self._running: dict[int, Call] = {}

    def start(self, id: int, payload: memoryview, now: float, timeout_s: float) -> None:
        """Raises ProtocolError on a malformed OUTCALL or an id in use; everything else is answered over the link."""
        head, name, context, body = frames.read_outcall(payload)
        if id in self._running:
            raise ProtocolError(f"an OUTCALL with id {id}, which is in use")
        if head.header_length != frames.NO_HEADER and head.header_length > len(body):
            raise ProtocolError(f"an OUTCALL whose header has {head.header_length} bytes, of {len(body)} that follow")
        try:
            call = self._call(id, head, name, context, body, now, timeout_s)
        except DespinaError as error:
            self._link.send_failure(id, error)
            return
        self._running[id] = call
        self._submit(call)

    def close(self) -> None:
        """The link is gone: nobody waits for these any more."""
        running, self._running = self._running, {}
        for call in running.values():
            self._cancel(call)

    def _call(self, id: int, head: frames.CallHead, name: str, context: memoryview, body: memoryview, now: float, timeout_s: float) -> Call:
        if len(self._running) >= MAX_OUTCALLS:
            raise QueueFull(f"{self._caller}: {MAX_OUTCALLS} calls to other functions run already")
        hops = head.hops + 1
        if hops > MAX_DEPTH:
            raise InvalidRequest(f"{self._caller} calls {name!r} {hops} calls deep; the limit is {MAX_DEPTH}")
        remaining_s = min(head.remaining_us / 1e6, timeout_s) if head.remaining_us else timeout_s
        return Call(
            self._resolve(self._caller, name),
            body,
            head.header_length,
            0,
            hops,
            bytes(context),
            deadline=now + remaining_s,
            on_reply=partial(self._reply, id),
            on_failure=partial(self._fail, id),
        )

    def _reply(self, id: int, call: Call, header_length: int, body: memoryview, flags: int) -> None:
        if self._running.pop(id, None) is call:
            self._link.send_result(id, header_length, body, flags)

    def _fail(self, id: int, call: Call, error: DespinaError) -> None:
        if self._running.pop(id, None) is call:
            self._link.send_failure(id, error)
