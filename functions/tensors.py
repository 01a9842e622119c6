"""Data types and the byte form of BYTES tensors. Standard library and numpy only: it runs in every replica.

A data type has a protocol name (``FP32``, on the wire), a configuration name (``TYPE_FP32``, in config.pbtxt) and a numpy
type. The two names differ by the prefix, except that ``BYTES`` is ``TYPE_STRING``. numpy has no BF16: such arrays are held as
``uint16`` and keep their protocol name beside them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from functions.errors import InvalidRequest


class DType(NamedTuple):
    """One row of the table. ``itemsize`` is in bytes, 0 for BYTES, whose elements differ in length."""

    protocol: str
    config: str
    numpy: np.dtype
    itemsize: int


_ROWS = (
    DType("BOOL", "TYPE_BOOL", np.dtype(np.bool_), 1),
    DType("UINT8", "TYPE_UINT8", np.dtype(np.uint8), 1),
    DType("UINT16", "TYPE_UINT16", np.dtype(np.uint16), 2),
    DType("UINT32", "TYPE_UINT32", np.dtype(np.uint32), 4),
    DType("UINT64", "TYPE_UINT64", np.dtype(np.uint64), 8),
    DType("INT8", "TYPE_INT8", np.dtype(np.int8), 1),
    DType("INT16", "TYPE_INT16", np.dtype(np.int16), 2),
    DType("INT32", "TYPE_INT32", np.dtype(np.int32), 4),
    DType("INT64", "TYPE_INT64", np.dtype(np.int64), 8),
    DType("FP16", "TYPE_FP16", np.dtype(np.float16), 2),
    DType("FP32", "TYPE_FP32", np.dtype(np.float32), 4),
    DType("FP64", "TYPE_FP64", np.dtype(np.float64), 8),
    DType("BYTES", "TYPE_STRING", np.dtype(np.object_), 0),
    DType("BF16", "TYPE_BF16", np.dtype(np.uint16), 2),
)
DTYPES: dict[str, DType] = {row.protocol: row for row in _ROWS}
"""By protocol name. Triton's own order."""

_BY_CONFIG = {row.config: row for row in _ROWS}
PLAIN: dict[np.dtype, str] = {row.numpy: row.protocol for row in _ROWS if row.protocol != "BF16"}
"""By numpy type, those of this machine's byte order."""
_LENGTH = struct.Struct("<I")


def numpy_dtype(protocol: str) -> np.dtype:
    """``FP32`` → ``float32``; BYTES → object; BF16 → uint16. Raises InvalidRequest for a name that is not in the table."""
    try:
        return DTYPES[protocol].numpy
    except KeyError:
        raise _unknown(protocol) from None


def itemsize(protocol: str) -> int:
    """Bytes of one element; 0 for BYTES. Raises InvalidRequest for a name that is not in the table."""
    try:
        return DTYPES[protocol].itemsize
    except KeyError:
        raise _unknown(protocol) from None


def protocol_dtype(dtype: np.dtype) -> str:
    """``float32`` → ``FP32``, in either byte order; object, ``S`` and ``U`` → BYTES. uint16 is UINT16, never BF16.
    Raises InvalidRequest for a numpy type that the protocol has no word for."""
    name = PLAIN.get(dtype)
    if name is not None:
        return name
    if dtype.kind in "SU":
        return "BYTES"
    name = PLAIN.get(dtype.newbyteorder("="))
    if name is None:
        raise InvalidRequest(f"numpy type {dtype} has no data type in the protocol; the types are {', '.join(DTYPES)}")
    return name


def config_dtype(config: str) -> str:
    """``TYPE_FP32`` → ``FP32``. Raises InvalidRequest for a name that is not in the table (TYPE_INVALID is not)."""
    try:
        return _BY_CONFIG[config].protocol
    except KeyError:
        raise InvalidRequest(f"{config!r} is not a data type of config.pbtxt; they are {', '.join(_BY_CONFIG)}") from None


def config_type(protocol: str) -> str:
    """``FP32`` → ``TYPE_FP32``. Raises InvalidRequest for a name that is not in the table."""
    try:
        return DTYPES[protocol].config
    except KeyError:
        raise _unknown(protocol) from None


def fits(pattern: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a tensor of ``shape`` may stand where ``pattern`` is declared: as many dimensions, each the same, or any where it says -1."""
    return len(pattern) == len(shape) and all(want in (-1, size) for want, size in zip(pattern, shape, strict=True))


def encode_bytes(array: np.ndarray) -> bytes:
    """A BYTES tensor as it travels: each element, in C order, as its length (u32, little-endian) and its bytes.
    ``str`` elements are sent as UTF-8; what is neither bytes nor str as the UTF-8 of ``str(element)``, as Triton does."""
    parts: list[bytes] = []
    for element in array.ravel().tolist():
        data = element if isinstance(element, bytes) else str(element).encode()
        parts.append(_LENGTH.pack(len(data)))
        parts.append(data)
    return b"".join(parts)


def decode_bytes(view: bytes | bytearray | memoryview, count: int) -> np.ndarray:
    """The ``count`` elements of a BYTES tensor as a flat object array of ``bytes``. The view must hold exactly them.
    Raises InvalidRequest naming the offset where it does not."""
    end = len(view)
    if count * 4 > end:
        raise InvalidRequest(f"{count} BYTES elements need at least {count * 4} bytes, got {end}")
    elements = np.empty(count, dtype=np.object_)
    position = 0
    for index in range(count):
        if position + 4 > end:
            raise InvalidRequest(f"BYTES element {index} of {count}: no room for its length at offset {position} of {end} bytes")
        (length,) = _LENGTH.unpack_from(view, position)
        start, position = position + 4, position + 4 + length
        if position > end:
            raise InvalidRequest(
                f"BYTES element {index} of {count}: {length} bytes at offset {start}, but only {end - start} of {end} are left"
            )
        elements[index] = bytes(view[start:position])
    if position != end:
        raise InvalidRequest(f"{count} BYTES elements end at offset {position}, but {end - position} bytes follow")
    return elements


def _unknown(protocol: str) -> InvalidRequest:
    return InvalidRequest(f"{protocol!r} is not a data type; the types are {', '.join(DTYPES)}")
