"""Classification: an output as its highest values, each with its index and, where the bundle has a label file, its label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from functions.config.spec import ModelConfig
from functions.errors import InvalidRequest, StartFailed

_SCORED = frozenset(("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"))

Labels = Mapping[str, Sequence[str]]
"""Output name → its labels, by index."""


def read_labels(config: ModelConfig, model_dir: str) -> dict[str, tuple[str, ...]]:
    """The labels of every output that has a label file: one a line, the line's number from 0 is the class index.
    Raises StartFailed when a file cannot be read or is not UTF-8."""
    labels: dict[str, tuple[str, ...]] = {}
    for output in config.outputs:
        if output.label_filename:
            path = Path(model_dir, output.label_filename)
            try:
                labels[output.name] = tuple(line.strip() for line in path.read_text("utf-8").splitlines())
            except (OSError, UnicodeDecodeError) as error:
                raise StartFailed(f"{config.name}: label file of output {output.name!r}, {output.label_filename}: {error}") from error
    return labels


def classify(array: np.ndarray, datatype: str, count: int, batched: bool, labels: Sequence[str] = ()) -> np.ndarray:
    """The ``count`` highest values as ``value:index[:label]``, as an object array of bytes of shape ``[batch,] min(count, classes)``.

    Sorted by value, equal ones by index, NaN last; floats with six decimals. Raises InvalidRequest for a type without an order.
    """
    if datatype not in _SCORED:
        raise InvalidRequest(f"class result not available for output due to unsupported type '{datatype}'")
    items = array.shape[0] if batched else 1
    rows = array.reshape(items, math.prod(array.shape[1:] if batched else array.shape))
    answers = np.empty((items, min(count, rows.shape[1])), dtype=np.object_)
    for place, row in enumerate(rows):
        answers[place] = [_class(row[index], index, labels) for index in _highest(row, answers.shape[1])]
    return answers if batched else answers[0]


def _highest(row: np.ndarray, count: int) -> list[int]:
    if row.dtype.kind == "f":
        row = np.where(np.isnan(row), -np.inf, row)
    # A stable ascending sort of the reversed row, read backwards, puts the lower index first among equals; negating the
    # values instead would wrap unsigned integers and the smallest signed one.
    order = len(row) - 1 - np.argsort(row[::-1], kind="stable")[::-1]
    ranked: list[int] = order[:count].tolist()
    return ranked


def _class(value: np.generic, index: int, labels: Sequence[str]) -> bytes:
    text = f"{value:.6f}" if value.dtype.kind == "f" else str(value)
    label = labels[index] if index < len(labels) else ""
    return f"{text}:{index}:{label}".encode() if label else f"{text}:{index}".encode()
