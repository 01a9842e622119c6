"""What all connections of the express lane share: the gate, the router, the limits, the bytes they may hold, what they count."""

from __future__ import annotations

import re
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from functools import partial
from typing import Protocol

from functions.errors import DespinaError, InternalError, QueueFull
from functions.names import Ref
from gateway.admit import Gate
from gateway.exchange import Exchange
from gateway.settings import HttpLimits
from workers.fleet.call import Call
from workers.process.page import Page

_INFER = re.compile(rb"/v2/models/([^/?#]+)(?:/versions/([^/?#]+))?/infer(?:[?#].*)?")
_KNOWN_PATHS = 4096


class Door(Protocol):
    """What the lane needs of the router."""

    def submit(self, call: Call) -> None: ...

    def cancel(self, call: Call) -> None: ...


class Lane:
    """One in a gateway process, used from its loop only."""

    def __init__(self, gate: Gate, router: Door, limits: HttpLimits, page: Page | None = None) -> None:
        self.gate = gate
        self.router = router
        self.limits = limits
        self.json_bytes = limits.json_mb << 20
        self.draining = False
        self._free_bytes = limits.bodies_mb << 20
        self._page = page
        self._counts: dict[tuple[Ref | None, str], int] = {}
        self._targets: dict[bytes, tuple[str, str | None] | None] = {}

    def target(self, url: bytes) -> tuple[str, str | None] | None:
        """Name and selector when ``url`` is an infer path, else None. Paths are matched raw, as Triton does."""
        try:
            return self._targets[url]
        except KeyError:
            found = _INFER.fullmatch(url)
            answer = None
            if found is not None:
                name, selector = found.groups()
                answer = (name.decode("latin-1"), None if selector is None else selector.decode("latin-1"))
            if len(self._targets) >= _KNOWN_PATHS:
                self._targets.clear()
            self._targets[url] = answer
            return answer

    def read(self, loop: AbstractEventLoop, ref: Ref, then: Callable[[DespinaError | None], None]) -> None:
        """Read the record of a version that nobody has asked for yet, in a thread; ``then`` is called on the loop."""
        loop.run_in_executor(None, self.gate.read, ref).add_done_callback(partial(_tell, then))

    def reserve(self, exchange: Exchange, size: int) -> None:
        """Hold ``size`` more bytes for an exchange's body. Raises QueueFull when all bodies together would be over the bound."""
        if size > self._free_bytes:
            raise QueueFull(
                f"the gateway holds {self.limits.bodies_mb} MiB of request bodies already, and this one needs {size} bytes more"
            )
        self._free_bytes -= size
        exchange.reserved += size

    def release(self, exchange: Exchange) -> None:
        """Give back what an exchange holds; twice is harmless."""
        self._free_bytes += exchange.reserved
        exchange.reserved = 0

    def count(self, exchange: Exchange, code: str) -> None:
        """Count one answer: ``ok``, or the error's code."""
        page = self._page
        if page is None:
            return
        ref = exchange.admitted.facts.ref if exchange.admitted is not None else None
        try:
            index = self._counts[ref, code]
        except KeyError:
            labels = {"function": ref.name if ref else "", "version": str(ref.version) if ref else "", "code": code}
            index = self._counts[ref, code] = page.series("despina_requests_total", labels)
        page.values[index] += 1


def _tell(then: Callable[[DespinaError | None], None], reading: Future[None]) -> None:
    error = reading.exception()
    if error is not None and not isinstance(error, DespinaError):
        fault = InternalError(f"while reading a version record: {error!r}")
        fault.__cause__ = error
        error = fault
    then(error)
