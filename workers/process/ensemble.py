"""An ensemble: a checked graph of steps over other members, run for a whole list of requests at once.

The list goes through the graph as one: each step gets every request that has reached it, in one call, and cuts it by its own
batching rules. A request that failed, was cancelled or ran out of time takes no further step; a step that no requested output
depends on is not run. Tensors pass by reference; a step whose author may write to its inputs gets a copy of those that somebody
else reads too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from functions.config.spec import ModelConfig
from functions.config.spec import Step as StepSpec
from functions.errors import Cancelled, DeadlineExceeded, DespinaError, ModelInvalidArgument
from functions.graph import order
from functions.protocol.rules import Rules, label
from functions.protocol.values import Request, Response
from workers.process.batching import ALONE, Policy
from workers.process.branches import Branches
from workers.process.counters import Counters
from workers.process.model import Runs, checked
from workers.process.spent import Spent


class Step:
    """One step, bound to the member that its name is locked to. ``mean_s`` is how long it takes, lately."""

    __slots__ = ("copied", "index", "inputs", "mean_s", "model", "name", "needs", "outputs", "provided")

    def __init__(self, index: int, spec: StepSpec, model: Runs, needs: frozenset[int], shared: frozenset[str]) -> None:
        self.index, self.model, self.name, self.needs = index, model, spec.model_name, needs
        self.inputs = tuple(spec.input_map.items())
        self.outputs = tuple(spec.output_map)
        self.provided = dict(spec.output_map)
        self.copied = frozenset() if model.native else frozenset(spec.input_map.values()) & shared
        self.mean_s = 0.0


class Flow:
    """One request on its way: the tensors it has so far, and what stopped it, if anything did."""

    __slots__ = ("dtypes", "error", "needed", "request", "starved", "tensors")

    def __init__(self, request: Request, needed: frozenset[int]) -> None:
        self.request, self.needed = request, needed
        self.tensors = dict(request.inputs)
        self.dtypes = dict(request.dtypes)
        self.error: DespinaError | None = None
        self.starved = ""
        """Why a step could not be run for this request: a step before it left out an output."""


class Ensemble:
    """``models`` is by step name, as the ensemble's own lock resolves them."""

    native = False

    def __init__(self, config: ModelConfig, models: Mapping[str, Runs], counters: Counters, pool: ThreadPoolExecutor) -> None:
        self.config, self.counters = config, counters
        self.rules = Rules(config)
        self._steps = _bind(config, models)
        self._order = [self._steps[index] for wave in order(config.steps) for index in wave]
        self.policy = door_policy([step.model.policy for step in self._steps])
        self._branches = Branches({step.index: step.needs for step in self._order}, pool)
        self._producers = {tensor: step.index for step in self._steps for tensor in step.provided.values()}
        self._needed: dict[tuple[str, ...], frozenset[int]] = {}

    def execute(self, requests: Sequence[Request], spent: Spent | None = None) -> list[Response]:
        flows = [Flow(request, self._needs(request.outputs)) for request in requests]
        steps = frozenset().union(*(flow.needed for flow in flows))
        own = [Spent() for _ in self._steps]
        self._branches.run(
            [step.index for step in self._order if step.index in steps],
            lambda index: self._step(self._steps[index], flows, own[index]),
            lambda index: self._steps[index].mean_s,
        )
        responses = [self._response(flow) for flow in flows]
        total = Spent()
        for each in own:
            total.merge(each)
        sizes = [request.rows for request in requests] if self.config.max_batch_size else [1] * len(requests)
        self.counters.passed(sizes, responses, total)
        if spent is not None:
            spent.merge(total)
        return responses

    def batch(self, requests: Sequence[Request]) -> list[Response]:
        return self.execute(requests)

    def ask(self, requests: Sequence[Request], spent: Spent | None = None) -> list[Response]:
        return checked(self.rules, requests, lambda good: self.execute(good, spent))

    def _step(self, step: Step, flows: Sequence[Flow], spent: Spent) -> None:
        now = time.monotonic()
        going = [flow for flow in flows if step.index in flow.needed and self._goes_on(flow, now)]
        asked = [(flow, request) for flow in going if (request := self._request(step, flow)) is not None]
        if not asked:
            return
        started = time.perf_counter()
        answers = step.model.ask([request for _, request in asked], spent)
        step.mean_s += (time.perf_counter() - started - step.mean_s) / 8
        for (flow, _), answer in zip(asked, answers, strict=True):
            if answer.error is not None:
                flow.error = flow.error or self._prefixed(answer.error)
                continue
            for name, array in answer.outputs.items():
                tensor = step.provided[name]
                flow.tensors[tensor] = array
                if name in answer.dtypes:
                    flow.dtypes[tensor] = answer.dtypes[name]

    def _goes_on(self, flow: Flow, now: float) -> bool:
        request = flow.request
        if flow.error is None:
            if request.deadline is not None and now > request.deadline:
                flow.error = DeadlineExceeded(f"in ensemble '{self.config.name}', the time of the call ran out between two steps")
            elif request.cancelled():
                flow.error = Cancelled(f"in ensemble '{self.config.name}', the call was cancelled between two steps")
        return flow.error is None

    def _request(self, step: Step, flow: Flow) -> Request | None:
        """What the step is asked for this request; None when a tensor it needs does not exist."""
        inputs: dict[str, np.ndarray] = {}
        dtypes: dict[str, str] = {}
        for name, tensor in step.inputs:
            array = flow.tensors.get(tensor)
            if array is None:
                if tensor in self._producers:
                    before = self._steps[self._producers[tensor]]
                    flow.starved = flow.starved or f"step '{step.name}' was not run, because step '{before.name}' left out '{tensor}'"
                    return None
                continue  # an optional input of the ensemble that the caller left out
            inputs[name] = array.copy() if tensor in step.copied else array
            if tensor in flow.dtypes:
                dtypes[name] = flow.dtypes[tensor]
        asked = flow.request
        return Request(
            inputs,
            step.outputs,
            asked.id,
            asked.parameters,
            dtypes,
            asked.deadline,
            asked.hops,
            asked.correlation_id,
            asked.flags,
            asked.timeout_us,
            asked.priority,
            asked.cancelled,
            asked.origin,
        )

    def _response(self, flow: Flow) -> Response:
        """An output that the last step left out is missing without a word, as in Triton; one that no step could be run for is an error."""
        wanted = [name for name in flow.request.outputs if name in flow.tensors]
        if flow.error is None and flow.starved and len(wanted) < len(flow.request.outputs):
            flow.error = ModelInvalidArgument(
                f"in ensemble '{self.config.name}', {label(flow.request.id)}unexpected deadlock, at least one output is not set while no "
                f"more ensemble steps can be made: {flow.starved}"
            )
        if flow.error is not None:
            return Response(error=flow.error)
        return Response({name: flow.tensors[name] for name in wanted}, {name: flow.dtypes[name] for name in wanted if name in flow.dtypes})

    def _prefixed(self, error: DespinaError) -> DespinaError:
        return type(error)(f"in ensemble '{self.config.name}', {error.message}")

    def _needs(self, outputs: tuple[str, ...]) -> frozenset[int]:
        """The steps that these outputs depend on."""
        known = self._needed.get(outputs)
        if known is None:
            found: set[int] = set()
            front = [self._producers[name] for name in outputs if name in self._producers]
            while front:
                index = front.pop()
                if index not in found:
                    found.add(index)
                    front.extend(self._steps[index].needs)
            known = self._needed[outputs] = frozenset(found)
        return known


def door_policy(steps: Sequence[Policy]) -> Policy:
    """How calls from outside are gathered for a graph of such steps. Its steps cut what has come in by their own rules, so it mixes
    all shapes; where a step would wait for more, the wait is here, since inside the graph nothing more can come."""
    slowest = max(steps, key=lambda policy: policy.delay_s)
    largest = max(policy.largest for policy in steps)
    return Policy(largest, slowest.preferred or (largest,), slowest.delay_s, mixed=True) if largest > 1 else ALONE


def _bind(config: ModelConfig, models: Mapping[str, Runs]) -> list[Step]:
    producers = {tensor: index for index, step in enumerate(config.steps) for tensor in step.output_map.values()}
    readers = Counter(tensor for step in config.steps for tensor in step.input_map.values())
    readers.update(spec.name for spec in config.outputs)
    shared = frozenset(tensor for tensor, count in readers.items() if count > 1)
    return [
        Step(
            index,
            spec,
            models[spec.model_name],
            frozenset(producers[tensor] for tensor in spec.input_map.values() if tensor in producers),
            shared,
        )
        for index, spec in enumerate(config.steps)
    ]
