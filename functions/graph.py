"""Graphs of functions, checked before they are recorded: the steps of an ensemble, and the closure that locks make.

Everything here is pure. An ensemble's graph has two checks, because they need different knowledge: ``check_steps`` reads only
the ensemble's own configuration (part of every publish check), ``check_tensors`` also those of its callees (when a lock is made).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from functions.config.spec import ModelConfig, Shape, Step, TensorSpec
from functions.errors import BundleRefused
from functions.names import FUNCTION, Ref
from functions.records import Locked
from functions.tensors import config_type

MAX_DEPTH = 8
"""Calls one inside another; the root itself is 0 deep."""

_STEP = "config.pbtxt: ensemble_scheduling.step[{}]"


def check_steps(config: ModelConfig) -> None:
    """Whether the ensemble's steps make one graph from its inputs to its outputs. Raises BundleRefused naming step and tensor."""
    if not config.steps:
        raise BundleRefused("an ensemble without steps", field="config.pbtxt: ensemble_scheduling", fix="add at least one step")
    for index, step in enumerate(config.steps):
        _check_step(config.name, index, step)
    producers = _producers(config)
    consumed = {tensor for step in config.steps for tensor in step.input_map.values()}
    _check_ends(config, producers, consumed)
    for index, step in enumerate(config.steps):
        for tensor in step.input_map.values():
            if tensor not in producers and tensor not in config.input_named:
                raise BundleRefused(
                    f"{_name(index, step)} takes the tensor {tensor!r}, which neither a step nor the ensemble's input provides",
                    field=_STEP.format(index),
                    fix="map it to an ensemble input or to a tensor of an earlier step's output_map",
                )
    for tensor, index in producers.items():
        if tensor not in consumed and tensor not in config.output_named:
            raise BundleRefused(
                f"{_name(index, config.steps[index])} provides the tensor {tensor!r}, which nobody takes",
                field=_STEP.format(index),
                fix="use it in a later step, declare it as an output, or leave it out of output_map",
            )
    order(config.steps)


def order(steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """The steps, by index, in waves: each wave needs only what earlier waves and the ensemble's inputs provide, so the steps of
    one wave may run side by side. Raises BundleRefused when steps wait for each other in a circle."""
    producers = {tensor: index for index, step in enumerate(steps) for tensor in step.output_map.values()}
    needs = [{producers[tensor] for tensor in step.input_map.values() if tensor in producers} for step in steps]
    waves: list[tuple[int, ...]] = []
    done: set[int] = set()
    while len(done) < len(steps):
        wave = tuple(index for index in range(len(steps)) if index not in done and needs[index] <= done)
        if not wave:
            circle = ", ".join(_name(index, steps[index]) for index in _circle(needs, done))
            raise BundleRefused(
                f"these steps wait for each other: {circle}",
                field="config.pbtxt: ensemble_scheduling.step",
                fix="an ensemble has no loops; write a Python function that calls the models in a loop instead",
            )
        waves.append(wave)
        done.update(wave)
    return waves


def check_tensors(config: ModelConfig, callees: Mapping[str, ModelConfig]) -> None:
    """Whether the ensemble fits the functions it calls: their tensors exist, required ones are mapped, data types and shapes
    agree from end to end, batches are not larger than a step can take. ``callees`` is by function name, as the lock resolves
    them. Raises BundleRefused naming tensor, step and both sides."""
    seen: dict[str, _End] = {}
    for tensor in config.inputs:
        seen[tensor.name] = _End("the ensemble's input", tensor)
    # Providers before takers, so that a mismatch is told as "provided by … , taken by …".
    ends = [*_step_ends(config, callees, provided=True), *_step_ends(config, callees, provided=False)]
    ends += [(tensor.name, _End("the ensemble's output", tensor), "config.pbtxt: output") for tensor in config.outputs]
    for name, end, field in ends:
        first = seen.setdefault(name, end)
        _check_same(name, first, end, field)


def check_closure(root: Ref, lock_of: Callable[[Ref], Mapping[str, Locked]]) -> None:
    """Whether the graph of locks below ``root`` may run: at most MAX_DEPTH calls deep, and no function below itself unless one
    edge of that circle is ``shared`` (versions are immutable, so such a chain of different versions is finite, but it
    would re-lock for ever). Raises BundleRefused naming the chain."""
    depths: dict[Ref, int] = {}
    below: dict[Ref, frozenset[str]] = {}

    def visit(ref: Ref, chain: tuple[Ref, ...]) -> None:
        chain = (*chain, ref)
        if len(chain) - 1 > MAX_DEPTH:
            raise _too_deep(chain)
        depth, names = 0, set[str]()
        for callee, edge in lock_of(ref).items():
            target = Ref(callee, edge.version)
            if target not in depths:
                visit(target, chain)
            depth = max(depth, depths[target] + 1)
            if not edge.shared:
                names |= {callee} | below[target]
            if ref.name in names:
                raise BundleRefused(
                    f"{ref.name} calls itself through {target}",
                    field="lock",
                    fix="mutual recursion needs one edge with shared = true in [calls] of function.toml",
                )
        if len(chain) - 1 + depth > MAX_DEPTH:
            raise _too_deep(chain)
        depths[ref], below[ref] = depth, frozenset(names)

    visit(root, ())


class _End(NamedTuple):
    """One place where an ensemble tensor is provided or taken."""

    where: str
    spec: TensorSpec


def _check_step(name: str, index: int, step: Step) -> None:
    field = _STEP.format(index)
    if not FUNCTION.fullmatch(step.model_name):
        raise BundleRefused(f"model_name is {step.model_name!r}", field=field, fix="name the function this step calls")
    if step.model_name == name:
        raise BundleRefused(f"the ensemble {name!r} is a step of itself", field=field, fix="name another function")
    if step.model_version < -1:
        raise BundleRefused(
            f"model_version is {step.model_version}",
            field=field,
            fix="write -1 (or leave it out) to follow a tag, or a version from 1 to pin it",
        )
    for kind, mapping in (("input_map", step.input_map), ("output_map", step.output_map)):
        if not mapping:
            raise BundleRefused(f"{_name(index, step)} has no {kind}", field=field, fix=f"map at least one tensor in {kind}")
        for key, value in mapping.items():
            if not key or not value:
                raise BundleRefused(f"{kind} maps {key!r} to {value!r}", field=field, fix="both sides need a tensor's name")


def _producers(config: ModelConfig) -> dict[str, int]:
    producers: dict[str, int] = {}
    for index, step in enumerate(config.steps):
        for tensor in step.output_map.values():
            if tensor in config.input_named:
                raise BundleRefused(
                    f"{_name(index, step)} provides {tensor!r}, which is the ensemble's input",
                    field=_STEP.format(index),
                    fix="rename one of them",
                )
            if tensor in producers:
                other = producers[tensor]
                raise BundleRefused(
                    f"the tensor {tensor!r} is provided twice: by {_name(other, config.steps[other])} and by {_name(index, step)}",
                    field=_STEP.format(index),
                    fix="rename one of them",
                )
            producers[tensor] = index
    return producers


def _check_ends(config: ModelConfig, producers: Mapping[str, int], consumed: set[str]) -> None:
    for tensor in config.inputs:
        if tensor.name not in consumed:
            raise BundleRefused(
                f"no step takes the ensemble's input {tensor.name!r}",
                field="config.pbtxt: input",
                fix="use it in an input_map or remove it",
            )
    for tensor in config.outputs:
        if tensor.name not in producers:
            raise BundleRefused(
                f"no step provides the ensemble's output {tensor.name!r}",
                field="config.pbtxt: output",
                fix="name it as a value of an output_map or remove it",
            )


def _step_ends(config: ModelConfig, callees: Mapping[str, ModelConfig], *, provided: bool) -> Iterator[tuple[str, _End, str]]:
    for index, step in enumerate(config.steps):
        field, name = _STEP.format(index), _name(index, step)
        callee = callees.get(step.model_name)
        if callee is None:
            raise BundleRefused(f"{name} calls {step.model_name!r}, which is not there", field=field, fix="publish that function first")
        if 0 < callee.max_batch_size < config.max_batch_size:
            raise BundleRefused(
                f"the ensemble takes batches of up to {config.max_batch_size}, {name} only of up to {callee.max_batch_size}",
                field=field,
                fix=f"set the ensemble's max_batch_size to {callee.max_batch_size} or raise that of {step.model_name!r}",
            )
        side, tensors = ("output", callee.output_named) if provided else ("input", callee.input_named)
        mapping = step.output_map if provided else step.input_map
        for key, tensor in mapping.items():
            if key not in tensors:
                known = ", ".join(tensors) or "none"
                raise BundleRefused(
                    f"{step.model_name!r} has no {side} {key!r}", field=f"{field}.{side}_map", fix=f"its {side}s are: {known}"
                )
            yield tensor, _End(f"{side} {key!r} of {name}", tensors[key]), f"{field}.{side}_map"
        if not provided:
            for spec in callee.inputs:
                if not spec.optional and spec.name not in mapping:
                    raise BundleRefused(
                        f"{name} does not get its required input {spec.name!r}",
                        field=f"{field}.input_map",
                        fix="map it to an ensemble tensor",
                    )


def _check_same(name: str, first: _End, other: _End, field: str) -> None:
    if first.spec.datatype != other.spec.datatype:
        raise BundleRefused(
            f"the tensor {name!r} is {config_type(first.spec.datatype)} as {first.where}, "
            f"but {config_type(other.spec.datatype)} as {other.where}",
            field=field,
            fix="put a step between them that converts it, or correct one of the two configurations",
        )
    if not _fits(first.spec.full_shape, other.spec.full_shape):
        raise BundleRefused(
            f"the tensor {name!r} has the shape {list(first.spec.full_shape)} as {first.where}, "
            f"but {list(other.spec.full_shape)} as {other.where} (a batch dimension included, -1 = any size)",
            field=field,
            fix="correct dims or max_batch_size of one of the two",
        )


def _fits(one: Shape, other: Shape) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _circle(needs: Sequence[set[int]], done: set[int]) -> list[int]:
    """The steps of one circle among those not done, each of which needs another one not done."""
    walk: list[int] = [next(index for index in range(len(needs)) if index not in done)]
    while True:
        following = min(needs[walk[-1]] - done)
        if following in walk:
            return sorted(walk[walk.index(following) :])
        walk.append(following)


def _too_deep(chain: tuple[Ref, ...]) -> BundleRefused:
    calls = " → ".join(str(ref) for ref in chain)
    return BundleRefused(f"more than {MAX_DEPTH} calls one inside another: {calls} …", field="lock", fix="call fewer levels of functions")


def _name(index: int, step: Step) -> str:
    return f"step {index} ({step.model_name})"
