"""A callee of the lock that has replicas of its own (``shared``): the same version, reached over the link."""

from __future__ import annotations

import time
from collections.abc import Sequence

from functions.names import Ref
from functions.protocol.values import Request, Response
from workers.process.batching import ALONE, Policy
from workers.process.outcalls import Outcalls
from workers.process.spent import Spent


class Elsewhere:
    """Its own replicas check, batch and count its requests; here its whole time is waiting."""

    native = True
    policy: Policy = ALONE

    def __init__(self, ref: Ref, outcalls: Outcalls) -> None:
        self._ref, self._outcalls = ref, outcalls

    def execute(self, requests: Sequence[Request], spent: Spent | None = None) -> list[Response]:
        started = time.perf_counter()
        answers = self._outcalls.ask(str(self._ref), requests)
        if spent is not None:
            spent.add(len(requests), 0.0, 0.0, (time.perf_counter() - started) * 1e6, 0.0)
        return answers

    def batch(self, requests: Sequence[Request]) -> list[Response]:
        return self.execute(requests)

    def ask(self, requests: Sequence[Request], spent: Spent | None = None) -> list[Response]:
        return self.execute(requests, spent)
