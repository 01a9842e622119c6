"""The declared inputs and outputs of a configuration: names, data types, dims and reshape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from functions.errors import BundleRefused


def check(config: Mapping[str, Any]) -> None:
    """Check ``input`` and ``output`` of a completed dictionary. Raises BundleRefused naming the entry's field."""
    batches = config["max_batch_size"] > 0
    for side in ("input", "output"):
        names: set[str] = set()
        for index, entry in enumerate(config[side]):
            field = f"config.pbtxt: {side}[{index}]"
            _check_tensor(entry, field, batches)
            if entry["name"] in names:
                raise BundleRefused(f"the {side} {entry['name']!r} is declared twice", field=f"{field}.name", fix="remove or rename one")
            names.add(entry["name"])


def _check_tensor(entry: Mapping[str, Any], field: str, batches: bool) -> None:
    name, dims = entry["name"], entry["dims"]
    if not name:
        raise BundleRefused("a tensor without a name", field=f"{field}.name", fix="name it")
    if entry["data_type"] == "TYPE_INVALID":
        raise BundleRefused(f"{name!r} has no data type", field=f"{field}.data_type", fix="write one, like TYPE_FP32")
    if not dims:
        raise BundleRefused(
            f"{name!r} has no dims", field=f"{field}.dims", fix="write them without the batch dimension, like [ 3, 224, 224 ]"
        )
    _check_dims(dims, f"{field}.dims")
    if entry.get("format", "FORMAT_NONE") != "FORMAT_NONE" and len(dims) != 3:
        raise BundleRefused(f"{entry['format']} needs 3 dims, {name!r} has {len(dims)}", field=f"{field}.format", fix="leave format out")
    if "reshape" in entry:
        _check_reshape(dims, entry["reshape"]["shape"], f"{field}.reshape.shape", batches)
    for flag in ("is_shape_tensor", "is_non_linear_format_io"):
        if entry[flag]:
            raise BundleRefused("only TensorRT models have it", field=f"{field}.{flag}", fix="remove it")
    if entry.get("allow_ragged_batch"):
        raise BundleRefused("ragged batches are not available in this release", field=f"{field}.allow_ragged_batch", fix="pad the tensors")


def _check_dims(dims: Sequence[int], field: str) -> None:
    for size in dims:
        if size < 1 and size != -1:
            raise BundleRefused(
                f"{size} in {list(dims)}", field=field, fix="each size is 1 or more, or -1 for one that only the request knows"
            )


def _check_reshape(dims: Sequence[int], shape: Sequence[int], field: str, batches: bool) -> None:
    if not shape and not batches:
        raise BundleRefused(
            "an empty reshape without batching; there are no scalar tensors", field=field, fix="set max_batch_size or remove reshape"
        )
    _check_dims(shape, field)
    declared, seen = _runs(dims), _runs(shape)
    if len(declared) != len(seen):
        raise BundleRefused(
            f"{list(shape)} has {len(seen) - 1} sizes of -1, dims {list(dims)} has {len(declared) - 1}",
            field=field,
            fix="give both the same number",
        )
    if declared != seen:
        raise BundleRefused(
            f"{list(shape)} does not hold as many elements as dims {list(dims)}",
            field=field,
            fix="the products must be equal, also those between two sizes of -1",
        )


def _runs(shape: Sequence[int]) -> list[int]:
    """The products of the sizes before, between and after the -1 of a shape: [2, 3, -1, 4] → [6, 4]."""
    runs: list[list[int]] = [[]]
    for size in shape:
        if size == -1:
            runs.append([])
        else:
            runs[-1].append(size)
    return [math.prod(run) for run in runs]
