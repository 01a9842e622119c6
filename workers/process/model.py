"""One member of the closure, ready to run: anything that answers a list of requests with a list of responses.

Two kinds live in a closure, ``Model`` here (a backend's instances) and ``Ensemble`` (steps over other members); a third,
``Elsewhere``, stands for a callee that has replicas of its own. Callers do not know which they hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from functions.config.spec import ModelConfig
from functions.errors import DeadlineExceeded, DespinaError, InvalidRequest, ModelInvalidArgument
from functions.protocol.rules import Rules
from functions.protocol.values import Request, Response
from workers.process.batching import ALONE, Policy, chunks
from workers.process.counters import Counters
from workers.process.instances import Instance, Instances
from workers.process.log import our_fault
from workers.process.owned import own
from workers.process.reshape import Reshape
from workers.process.spent import Spent


class Runs(Protocol):
    """No method raises: errors come in the responses, one response a request, in order.

    ``native``: it writes to no array it is given. Everyone else is handed arrays that nobody else will read. ``policy``: how
    calls from outside become its batches."""

    native: bool
    policy: Policy

    def execute(self, requests: Sequence[Request], spent: Spent | None = None) -> list[Response]:
        """Trusts its requests: the codec or ``ask`` has checked them."""
        ...

    def batch(self, requests: Sequence[Request]) -> list[Response]:
        """As ``execute``, for a list that was cut by ``policy``."""
        ...

    def ask(self, requests: Sequence[Request], spent: Spent | None = None) -> list[Response]:
        """For requests made inside the process: each is checked and completed first, and no later execution writes to an array
        of its answer."""
        ...


class Model:
    """A member that a backend runs."""

    def __init__(self, config: ModelConfig, instances: Instances, counters: Counters, *, native: bool) -> None:
        self.config, self.instances, self.counters, self.native = config, instances, counters, native
        self.policy = policy(config)
        self.rules = Rules(config)
        self._batching = config.max_batch_size > 0
        self._declared = config.output_named
        self._reshape = Reshape.of(config)

    def execute(self, requests: Sequence[Request], spent: Spent | None = None) -> list[Response]:
        if len(requests) == 1:
            return self._chunk(requests, spent)
        answers: dict[int, Response] = {}
        for positions in chunks(requests, self.policy):
            answers.update(zip(positions, self._chunk([requests[position] for position in positions], spent), strict=True))
        return [answers[position] for position in range(len(requests))]

    def batch(self, requests: Sequence[Request]) -> list[Response]:
        return self._chunk(requests, None)

    def ask(self, requests: Sequence[Request], spent: Spent | None = None) -> list[Response]:
        return checked(self.rules, requests, lambda good: self.execute(good, spent) if self.native else self._owned(good, spent))

    def warm(self, requests: Sequence[Request]) -> None:
        """Answer ``requests``, as one batch, on every instance. Raises the first error."""
        for request in requests:
            self.rules.complete(request)
        if self._reshape:
            requests = [self._reshape.inputs(request) for request in requests]
        for instance in self.instances.all:
            for answer in instance.backend.execute(requests):
                if answer.error is not None:
                    raise answer.error

    def close(self) -> None:
        self.instances.close()

    def _owned(self, requests: Sequence[Request], spent: Spent | None) -> list[Response]:
        """An author may answer with one buffer again and again: what it holds is taken out of it before the next batch."""
        answers: dict[int, Response] = {}
        for positions in chunks(requests, self.policy):
            for position, answer in zip(positions, self._chunk([requests[each] for each in positions], spent), strict=True):
                own(answer.outputs)
                answers[position] = answer
        return [answers[position] for position in range(len(requests))]

    def _chunk(self, batch: Sequence[Request], spent: Spent | None) -> list[Response]:
        begun = time.perf_counter_ns()
        try:
            instance = self.instances.acquire(latest(batch))
        except DeadlineExceeded as error:
            waited_us = (time.perf_counter_ns() - begun) / 1e3
            for _ in batch:
                self.counters.dropped(error, waited_us)
            return [Response(error=error) for _ in batch]
        started = time.perf_counter_ns()
        try:
            responses = self._run(instance, batch)
        finally:
            input_ns, output_ns = instance.backend.spent_ns
            self.instances.release(instance)
        for request, answer in zip(batch, responses, strict=True):
            self._prune(request, answer)
        queue_us, input_us, output_us = (started - begun) / 1e3, input_ns / 1e3, output_ns / 1e3
        infer_us = (time.perf_counter_ns() - started) / 1e3 - input_us - output_us
        sizes = [request.rows for request in batch] if self._batching else [1] * len(batch)
        self.counters.executed(sizes, responses, queue_us, input_us, infer_us, output_us)
        if spent is not None:
            spent.add(len(batch), queue_us, input_us, infer_us, output_us)
        return responses

    def _run(self, instance: Instance, batch: Sequence[Request]) -> list[Response]:
        try:
            if self._reshape:
                batch = [self._reshape.inputs(request) for request in batch]
            return instance.backend.execute(batch)
        except DespinaError as error:
            return [Response(error=error) for _ in batch]
        except Exception as error:
            # A backend raises nothing else: this is a bug of ours, and the replica goes on.
            fault = our_fault(f"the backend of {self.config.name}", error)
            return [Response(error=fault) for _ in batch]

    def _prune(self, request: Request, answer: Response) -> None:
        """Drop what was not declared or not asked for, as Triton does without a word, and give outputs their outer shapes."""
        outputs, wanted, declared = answer.outputs, request.outputs, self._declared
        for name in outputs:
            if name not in wanted or name not in declared:
                answer.outputs = {name: array for name, array in outputs.items() if name in wanted and name in declared}
                break
        if self._reshape:
            self._reshape.outputs(answer.outputs)


def policy(config: ModelConfig) -> Policy:
    """A model's batching rules. Without ``dynamic_batching``, or without a batch dimension, each request runs alone."""
    dynamic = config.dynamic_batching
    if dynamic is None or config.max_batch_size == 0:
        return ALONE
    return Policy(config.max_batch_size, dynamic.preferred, dynamic.delay_us / 1e6)


def checked(rules: Rules, requests: Sequence[Request], run: Callable[[list[Request]], list[Response]]) -> list[Response]:
    """Run those of ``requests`` that keep the model's rules, answer the others with why they do not: the caller is an author's
    code or an author's graph, so its author must act."""
    refused: dict[int, Response] = {}
    good: list[Request] = []
    for position, request in enumerate(requests):
        try:
            rules.complete(request)
        except InvalidRequest as error:
            refused[position] = Response(error=ModelInvalidArgument(error.message))
        else:
            good.append(request)
    answers = iter(run(good) if good else ())
    return [refused[position] if position in refused else next(answers) for position in range(len(requests))]


def latest(batch: Sequence[Request]) -> float | None:
    """Until when somebody waits for this batch (time.monotonic()); None: for ever."""
    latest = 0.0
    for request in batch:
        if request.deadline is None:
            return None
        latest = max(latest, request.deadline)
    return latest
