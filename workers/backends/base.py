"""The promise every backend keeps, and the two values that cross it. Standard library and numpy only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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


@dataclass(slots=True)
class Response:
    """One answer: the outputs by name in the model's order, or an error for this request alone."""

    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    """Protocol dtype of each output."""
    parameters: dict[str, Any] = field(default_factory=dict)
    error: DespinaError | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """What an instance is told about the version it runs."""

    name: str
    version: int
    model_dir: str
    version_dir: str
    config: Mapping[str, Any]
    instance: str
    """Triton's instance name: ``<group name>_<n>``."""
    kind: str = "CPU"
    device_id: int = 0
    call: Callable[[Request, str, int], Sequence[Response]] = field(default=lambda *_: ())
    """``call(request, callee, version)``: run a BLS call by this member's lock (version -1: the locked one); blocks.
    Errors come back in the Response, never as exceptions."""


class Backend(Protocol):
    """One instance: runs one batch at a time. Made in the process that runs it; the constructor loads, and may be slow.

    The constructor raises StartFailed with what the author must know. ``execute`` answers one Response a request, in order;
    when it raises a ModelFailed, every request of the batch gets it. ``close`` is called once, at the end, and does not raise.
    """

    def __init__(self, member: Member) -> None: ...

    def execute(self, requests: Sequence[Request]) -> list[Response]: ...

    def close(self) -> None: ...


class Inspect(Protocol):
    """What a backend tells about an artifact at publish time; a module-level function ``inspect(config, version_dir)`` of each
    backend's file returns the completed config dict or raises BundleRefused. It runs only in the inspection process."""

    def __call__(self, config: dict[str, Any], version_dir: str) -> dict[str, Any]: ...
