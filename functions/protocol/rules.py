"""What a model's configuration demands of a request: the same for a call from outside, an ensemble's step and a call by another model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from functions.config.spec import ModelConfig, TensorSpec
from functions.errors import InvalidRequest
from functions.protocol.values import Request
from functions.tensors import fits, itemsize, protocol_dtype

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. "
    "If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. "
    "See the model configuration docs for more info on max_batch_size."
)


class Given(NamedTuple):
    """One input's data type (protocol name) and shape, batch dimension included."""

    datatype: str
    shape: tuple[int, ...]


class Rules:
    """Made once a model. Every refusal is an InvalidRequest with Triton's text."""

    def __init__(self, config: ModelConfig) -> None:
        self.name = config.name
        self.max_batch_size = config.max_batch_size
        self._inputs: Mapping[str, TensorSpec] = {spec.name: spec for spec in config.inputs}
        self._required = tuple(spec.name for spec in config.inputs if not spec.optional)
        self.outputs = tuple(spec.name for spec in config.outputs)
        self.output_dtypes: Mapping[str, str] = {spec.name: spec.datatype for spec in config.outputs}

    def complete(self, request: Request) -> None:
        """Checks a request that was made inside the process (a step, a call by a model) and fills in what such a caller leaves
        open: the data types of its arrays, and all outputs when it named none. Raises InvalidRequest."""
        for name, array in request.inputs.items():
            if name not in request.dtypes:
                request.dtypes[name] = protocol_dtype(array.dtype)
        self.check({name: Given(request.dtypes[name], array.shape) for name, array in request.inputs.items()}, request.id)
        request.outputs = self.wanted(request.outputs)

    def wanted(self, names: Iterable[str]) -> tuple[str, ...]:
        """The outputs to answer: those named, each once, or all of them when none is. Raises InvalidRequest for an unknown one."""
        chosen = tuple(dict.fromkeys(names))
        for name in chosen:
            if name not in self.output_dtypes:
                raise InvalidRequest(f"unexpected inference output '{name}' for model '{self.name}'")
        return chosen or self.outputs

    def check(self, inputs: Mapping[str, Given], id: str = "") -> None:
        """Count and names, then the batch, then each type and shape, in Triton's order."""
        self._check_names(inputs, id)
        if self.max_batch_size:
            self._check_batch(inputs, id)
        for name, given in inputs.items():
            self._check_tensor(self._inputs[name], given, id)

    def mismatch(self, name: str, expected: int, got: int, id: str = "") -> InvalidRequest:
        """The refusal of a tensor whose bytes are not as many as its shape needs."""
        return InvalidRequest(
            f"{label(id)}input byte size mismatch for input '{name}' for model '{self.name}'. Expected {expected}, got {got}"
        )

    def _check_names(self, inputs: Mapping[str, Given], id: str) -> None:
        missing = [name for name in self._required if name not in inputs]
        few, many, count = len(self._required), len(self._inputs), len(inputs)
        unknown = next((name for name in inputs if name not in self._inputs), None)
        if few <= count <= many and unknown is not None:
            raise InvalidRequest(f"unexpected inference input '{unknown}' for model '{self.name}'")
        if missing or count > many:
            expected = f"{many} inputs" if few == many else f"number of inputs between {few} and {many}"
            raise InvalidRequest(
                f"{label(id)}expected {expected} but got {count} inputs for model '{self.name}'. Got input(s) {_names(inputs)}, "
                f"but missing required input(s) {_names(missing)}. Please provide all required input(s)."
            )

    def _check_batch(self, inputs: Mapping[str, Given], id: str) -> None:
        batch: int | None = None
        for name, given in inputs.items():
            if not given.shape:
                raise InvalidRequest(f"{label(id)}input '{name}' has no shape but model requires batch dimension for '{self.name}'")
            if batch is None:
                batch = given.shape[0]
            elif batch != given.shape[0]:
                raise InvalidRequest(f"{label(id)}input '{name}' batch size does not match other inputs for '{self.name}'")
        if batch is not None and batch > self.max_batch_size:
            raise InvalidRequest(f"{label(id)}inference request batch-size must be <= {self.max_batch_size} for '{self.name}'")

    def _check_tensor(self, spec: TensorSpec, given: Given, id: str) -> None:
        if given.datatype != spec.datatype:
            raise InvalidRequest(
                f"{label(id)}inference input '{spec.name}' data-type is '{given.datatype}', but model '{self.name}' "
                f"expects '{spec.datatype}'"
            )
        if not fits(spec.full_shape, given.shape):
            raise InvalidRequest(
                f"{label(id)}unexpected shape for input '{spec.name}' for model '{self.name}'. Expected {_shape(spec.full_shape)}, "
                f"got {_shape(given.shape)}. {_BATCH_NOTE if self.max_batch_size else ''}"
            )
        if self.max_batch_size and given.shape[0] == 0:
            raise self._empty_batch(spec, given, id)

    def _empty_batch(self, spec: TensorSpec, given: Given, id: str) -> InvalidRequest:
        elements = math.prod(given.shape[1:])
        if spec.datatype == "BYTES":
            return InvalidRequest(
                f"{label(id)}expected {elements} string elements for inference input '{spec.name}' for model '{self.name}', got 0"
            )
        return self.mismatch(spec.name, elements * itemsize(spec.datatype), 0, id)


def label(id: str) -> str:
    """How Triton names a request at the head of an error."""
    return f"[request id: {id or '<id_unknown>'}] "


def _names(names: Iterable[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"


def _shape(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
