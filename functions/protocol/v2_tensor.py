"""Tensors in the binary part of a body: row-major, little-endian, BYTES elements each with their length in front."""

from __future__ import annotations

import math
import struct

import numpy as np

from functions.errors import InvalidRequest, ModelFailed
from functions.tensors import DTYPES, decode_bytes, encode_bytes

_LENGTH = struct.Struct("<I")


class BrokenStrings(Exception):
    """The bytes of a BYTES tensor do not add up; ``text`` says how, in Triton's words."""

    def __init__(self, view: memoryview, count: int) -> None:
        super().__init__(count)
        self._view, self._count = view, count

    def text(self, name: str, model: str) -> str:
        where = f"for inference input '{name}' for model '{model}'"
        position = seen = 0
        while position < len(self._view):
            if seen == self._count:
                return f"unexpected number of string elements {seen + 1} {where}, expecting {self._count}"
            if position + 4 > len(self._view):
                left = len(self._view) - position
                return f"incomplete string length indicator {where}, expecting 4 bytes but only {left} bytes available"
            (length,) = _LENGTH.unpack_from(self._view, position)
            left = len(self._view) - position - 4
            if length > left:
                return f"incomplete string data {where}, expecting string of length {length} but only {left} bytes available"
            position += 4 + length
            seen += 1
        return f"expected {self._count} string elements {where}, got {seen}"


def from_bytes(body: memoryview, start: int, size_bytes: int, datatype: str, shape: tuple[int, ...]) -> np.ndarray:
    """The tensor at ``start``. Its size must have been checked, except that of BYTES, which raises BrokenStrings.

    The array is aligned and its owner may write to it, as models expect of their inputs. It is a view into the body where the
    body allows that (a bytearray, by luck of the offset), else a copy: in a small call the copy costs 0.3 µs.
    """
    if datatype == "BYTES":
        view, count = body[start : start + size_bytes], math.prod(shape)
        try:
            return decode_bytes(view, count).reshape(shape)
        except InvalidRequest:
            raise BrokenStrings(view, count) from None
    if datatype == "BOOL":
        # Any non-zero byte is true; a numpy bool of another byte than 0 and 1 would compare as neither.
        return np.ndarray(shape, np.uint8, body, start).astype(np.bool_)
    array: np.ndarray = np.ndarray(shape, DTYPES[datatype].numpy, body, start)
    return array.copy() if body.readonly or not array.flags.aligned else array


def to_bytes(array: np.ndarray, datatype: str, name: str) -> bytes:
    """The tensor as it travels, in bytes of its own. Raises ModelFailed when a string of a BYTES tensor has no UTF-8 form."""
    if datatype != "BYTES":
        return array.tobytes()
    try:
        return encode_bytes(array)
    except UnicodeEncodeError as error:
        raise ModelFailed(f"output '{name}' holds a string without a UTF-8 form: {error}") from None
