"""``reshape`` of config.pbtxt: callers see ``dims``, the model sees ``reshape.shape``, of as many elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from functions.config.spec import ModelConfig, TensorSpec
from functions.protocol.values import Request
from functions.tensors import fits


class Reshape:
    """Between the outer and the inner shapes of one model."""

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self._inputs, self._outputs = inputs, outputs

    @classmethod
    def of(cls, config: ModelConfig) -> Reshape | None:
        """None for a model that reshapes nothing."""
        inputs = [spec for spec in config.inputs if spec.reshape is not None]
        outputs = [spec for spec in config.outputs if spec.reshape is not None]
        return cls(inputs, outputs) if inputs or outputs else None

    def inputs(self, request: Request) -> Request:
        """``request``, its arrays as the model sees them."""
        for spec in self._inputs:
            array = request.inputs.get(spec.name)
            if array is not None:
                request.inputs[spec.name] = _reshaped(array, spec.full_shape, spec.model_shape)
        return request

    def outputs(self, outputs: dict[str, np.ndarray]) -> None:
        """Give the model's outputs their outer shapes, in place. One of another shape than the model declared stays as it is,
        as Triton leaves it."""
        for spec in self._outputs:
            array = outputs.get(spec.name)
            if array is not None and fits(spec.model_shape, array.shape):
                outputs[spec.name] = _reshaped(array, spec.model_shape, spec.full_shape)


def _reshaped(array: np.ndarray, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """The sizes that only a request knows stand in the same order on both sides: the config was checked for that."""
    sizes = iter([size for size, pattern in zip(array.shape, source, strict=True) if pattern == -1])
    return array.reshape([next(sizes) if pattern == -1 else pattern for pattern in target])
