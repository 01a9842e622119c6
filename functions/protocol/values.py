"""The two values that cross a model's door: what it is asked, what it answers. Standard library and numpy only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from functions.errors import DespinaError


@dataclass(slots=True)
class Request:
    """One call as a model sees it. Tensors are numpy arrays (BYTES: object arrays of bytes), C order, batch dimension included
    when ``max_batch_size`` > 0; BF16 travels as uint16 with its dtype named in ``dtypes``."""

    inputs: dict[str, np.ndarray]
    outputs: tuple[str, ...]
    """Names wanted back; never empty."""
    id: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    """Protocol dtype (``FP32``, ``BF16`` …) of each input."""
    deadline: float | None = None
    """time.monotonic() at which the caller stops waiting; None = no limit."""
    hops: int = 0
    """How many calls deep this one is: 0 at the door."""
    correlation_id: int | str = 0
    flags: int = 0
    timeout_us: int = 0
    priority: int = 0
    cancelled: Callable[[], bool] = lambda: False
    """Reads the link without blocking: whether the caller has gone away."""
    origin: Any = None
    """Whatever the door knows this call by; calls made on its behalf carry the same, and nobody else looks inside."""

    @property
    def rows(self) -> int:
        """How much it counts in a batching model: the length of its batch dimension (1 for one without inputs)."""
        for array in self.inputs.values():
            return array.shape[0] if array.ndim else 1
        return 1


@dataclass(slots=True)
class Response:
    """One answer: the outputs by name in the model's order, or an error for this request alone."""

    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    """Protocol dtype of each output."""
    parameters: dict[str, Any] = field(default_factory=dict)
    error: DespinaError | None = None
