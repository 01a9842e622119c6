"""The samples of ``model_warmup``: what every instance must answer before the replica is ready.

As in Triton a sample of batch size n is n requests of one item each, run as one batch; ``count`` runs it so many times. Data is
zeros, random (BYTES: empty strings either way), or the raw row-major bytes of ``warmup/<file>`` in the bundle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from functions.config.spec import ModelConfig, Warmup, WarmupInput
from functions.errors import DespinaError, InvalidRequest, StartFailed
from functions.protocol.values import Request
from functions.tensors import decode_bytes, numpy_dtype
from workers.process.model import Model


def warm(model: Model, model_dir: str) -> None:
    """Run every sample of ``model`` on every instance. Raises StartFailed naming the sample and what went wrong."""
    for sample in model.config.warmups:
        try:
            for _ in range(sample.count):
                model.warm(requests(sample, model.config, model_dir))
        except StartFailed:
            raise
        except DespinaError as error:
            raise StartFailed(f"warm-up sample '{sample.name}' of '{model.config.name}' failed: {error.message}") from error


def requests(sample: Warmup, config: ModelConfig, model_dir: str) -> list[Request]:
    """The requests of one run of ``sample``. Raises StartFailed where its data cannot be made."""
    allowed = max(1, config.max_batch_size)
    if sample.batch_size > allowed:
        raise StartFailed(
            f"warm-up sample '{sample.name}' of '{config.name}' has batch_size {sample.batch_size}; the model takes {allowed}"
        )
    front = (1,) if config.max_batch_size else ()
    return list(_requests(sample, front, model_dir))


def _requests(sample: Warmup, front: tuple[int, ...], model_dir: str) -> Iterator[Request]:
    for _ in range(sample.batch_size):
        arrays = {each.name: _array(each, model_dir).reshape(front + each.dims) for each in sample.inputs}
        yield Request(arrays, (), dtypes={each.name: each.datatype for each in sample.inputs})


def _array(each: WarmupInput, model_dir: str) -> np.ndarray:
    if any(size < 1 for size in each.dims):
        raise StartFailed(f"warmup setting expects all variable-size dimensions are specified for input '{each.name}'")
    count = math.prod(each.dims)
    if each.data == "file":
        return _file(each, count, Path(model_dir, "warmup", each.file))
    if each.datatype == "BYTES":
        array = np.empty(count, dtype=np.object_)
        array[:] = b""
        return array
    dtype = numpy_dtype(each.datatype)
    if each.data == "zero":
        return np.zeros(count, dtype)
    random = np.random.default_rng()
    if dtype.kind == "b":
        return random.random(count) < 0.5
    if dtype.kind in "iu":
        return np.frombuffer(random.bytes(count * dtype.itemsize), dtype).copy()
    return random.random(count).astype(dtype)


def _file(each: WarmupInput, count: int, path: Path) -> np.ndarray:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StartFailed(f"warmup data of input '{each.name}' cannot be read: {error}") from error
    if each.datatype == "BYTES":
        try:
            return decode_bytes(data, count)
        except InvalidRequest as error:
            raise StartFailed(f"warmup data of input '{each.name}' in {path.name}: {error.message}") from error
    dtype = numpy_dtype(each.datatype)
    if len(data) < count * dtype.itemsize:
        raise StartFailed(
            f"warmup setting expects {count * dtype.itemsize} bytes, but the data provided from {path.name} only has {len(data)} bytes"
        )
    return np.frombuffer(data, dtype, count).copy()
