"""Tensors as JSON lists, both ways, with Triton's strictness: what a number may be depends on the tensor's data type."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np

from functions.errors import InvalidRequest
from functions.tensors import itemsize, numpy_dtype


class Literal(float):
    """``NaN``, ``Infinity`` or ``-Infinity`` written out. A number too big for a double, like 1e400, is an infinite plain float."""


def from_json(data: Any, datatype: str, shape: tuple[int, ...], name: str) -> np.ndarray:
    """The array of a JSON ``data`` field, nested in any way, row-major. Integers wrap to their width, as in Triton.
    Raises InvalidRequest when an element is of another kind or the count is not the shape's."""
    if datatype in ("FP16", "BF16"):
        raise InvalidRequest(f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input {name}")
    if type(data) is not list:
        raise InvalidRequest("Unable to parse 'data': attempt to access JSON non-array as array")
    flat = _flatten(data)
    if len(flat) != math.prod(shape):
        raise InvalidRequest("Unable to parse 'data': Shape does not match true shape of 'data' field")
    kinds = set(map(type, flat))
    if datatype == "BYTES":
        array = _strings(flat, kinds)
    elif datatype == "BOOL":
        if not kinds <= {bool}:
            raise _not("boolean")
        array = np.array(flat, dtype=np.bool_)
    elif datatype in ("FP32", "FP64"):
        array = _floats(flat, kinds, datatype)
    else:
        array = _integers(flat, kinds, datatype)
    return array.reshape(shape)


def to_json(array: np.ndarray, datatype: str, name: str) -> list[Any]:
    """The array as a flat list for ``json.dumps``. A float is the double with its value, as Triton prints it.
    Raises InvalidRequest for FP16 and BF16, and for BYTES that are not UTF-8: those travel in the binary form only."""
    if datatype in ("FP16", "BF16"):
        raise InvalidRequest(f"sending {datatype} data via JSON is not supported. Please use the binary data format for output")
    flat: list[Any] = array.ravel().tolist()
    if datatype != "BYTES":
        return flat
    try:
        return [element.decode() if isinstance(element, bytes) else str(element) for element in flat]
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"output '{name}' holds bytes that are not UTF-8 ({error}); ask for it with \"binary_data\": true") from None


def _flatten(data: list[Any]) -> list[Any]:
    kinds = set(map(type, data))
    while kinds == {list}:
        data = list(chain.from_iterable(data))
        kinds = set(map(type, data))
    if list not in kinds:
        return data
    # Of mixed depth: walked with a stack, so that the cost is that of the elements and not elements × depth.
    flat: list[Any] = []
    stack = [iter(data)]
    while stack:
        for element in stack[-1]:
            if type(element) is list:
                stack.append(iter(element))
                break
            flat.append(element)
        else:
            stack.pop()
    return flat


def _strings(flat: list[Any], kinds: set[type]) -> np.ndarray:
    if not kinds <= {str}:
        raise InvalidRequest("Unable to parse JSON bytes array: attempt to access JSON non-string as string")
    array = np.empty(len(flat), dtype=np.object_)
    try:
        array[:] = [element.encode() for element in flat]
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"Unable to parse JSON bytes array: a string has no UTF-8 form: {error}") from None
    return array


def _floats(flat: list[Any], kinds: set[type], datatype: str) -> np.ndarray:
    if not kinds <= {int, float, Literal}:
        raise _not("number", "double")
    try:
        array = np.array(flat, dtype=np.float64)
    except OverflowError:
        raise _too_big() from None
    if np.isinf(array).any() and any(type(element) is float and math.isinf(element) for element in flat):
        raise _too_big()
    with np.errstate(over="ignore"):
        return array.astype(numpy_dtype(datatype), copy=False)


def _integers(flat: list[Any], kinds: set[type], datatype: str) -> np.ndarray:
    word, widest = ("unsigned-integer", np.uint64) if datatype.startswith("U") else ("signed-integer", np.int64)
    if not kinds <= {int}:
        raise _not(word)
    try:
        array = np.array(flat, dtype=widest)
    except OverflowError:
        raise _not(word) from None
    return array.astype(numpy_dtype(datatype), copy=itemsize(datatype) != 8)


def _not(word: str, as_word: str = "") -> InvalidRequest:
    return InvalidRequest(f"Unable to parse 'data': attempt to access JSON non-{word} as {as_word or word}")


def _too_big() -> InvalidRequest:
    return InvalidRequest("failed to parse the request JSON buffer: Number too big to be stored in double.")
