"""Raw binary requests: a body without JSON is the bytes of the model's only input."""

from __future__ import annotations

import math

import numpy as np

from functions.config.spec import ModelConfig
from functions.errors import InvalidRequest
from functions.protocol.rules import label
from functions.protocol.v2_tensor import from_bytes
from functions.tensors import itemsize


class Raw:
    """What a model makes of such a body: batch 1, at most one size left to deduce, and a single string for BYTES."""

    def __init__(self, config: ModelConfig) -> None:
        self._model = config.name
        self._inputs = config.inputs

    def read(self, body: memoryview) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """The input by name and its data type by name. Raises InvalidRequest."""
        if len(self._inputs) != 1:
            raise InvalidRequest(
                f"Raw request must only have 1 input (found 1) to be deduced but got {len(self._inputs)} inputs "
                f"in '{self._model}' model configuration"
            )
        spec = self._inputs[0]
        # The first -1 of a batching model's shape is the batch.
        front = (1,) if len(spec.full_shape) > len(spec.dims) else ()
        if spec.datatype == "BYTES":
            array = self._string(front + spec.dims, body)
        else:
            shape = front + self._deduce(spec.dims, len(body), itemsize(spec.datatype))
            array = from_bytes(body, 0, len(body), spec.datatype, shape)
        return {spec.name: array}, {spec.name: spec.datatype}

    def _deduce(self, dims: tuple[int, ...], size_bytes: int, item: int) -> tuple[int, ...]:
        known = math.prod(size for size in dims if size != -1) * item
        if dims.count(-1) > 1:
            raise InvalidRequest(
                f"{label('')}the shape of the raw input for model '{self._model}' can not be deduced: it has {dims.count(-1)} "
                f"dimensions of variable size"
            )
        if (size_bytes % known) if -1 in dims else (size_bytes != known):
            raise InvalidRequest(
                f"{label('')}input byte size mismatch for input 'raw_input' for model '{self._model}'. Expected {known}, got {size_bytes}"
            )
        return tuple(size_bytes // known if size == -1 else size for size in dims)

    def _string(self, shape: tuple[int, ...], body: memoryview) -> np.ndarray:
        if any(size not in (1, -1) for size in shape):
            raise InvalidRequest(
                f"{label('')}the raw input for model '{self._model}' is one string, but its configuration asks for {math.prod(shape)}"
            )
        array = np.empty((1,) * len(shape), dtype=np.object_)
        array.flat[0] = bytes(body)
        return array
