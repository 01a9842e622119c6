"""Tensor: a name and an array, always C-contiguous, always in CPU memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from functions.errors import InvalidRequest
from functions.python_api import dlpack
from functions.python_api.dtypes import number
from functions.python_api.errors import TritonModelException
from functions.tensors import PLAIN, protocol_dtype


class Tensor:
    """A named tensor. The array is taken as it is when it is C-contiguous and of native byte order, and copied otherwise."""

    __slots__ = ("_array", "_datatype", "_name")

    def __init__(self, name: str, array: np.ndarray) -> None:
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise TypeError(f"Tensor(name, array) takes a str and a numpy.ndarray, got {type(name)} and {type(array)}")
        self._name = name or _checked(name)
        datatype = PLAIN.get(array.dtype)
        if datatype is not None and array.flags.c_contiguous:
            self._datatype, self._array = datatype, array
        else:
            self._datatype, self._array = _datatype(array.dtype), _plain(array)

    def name(self) -> str:
        return self._name

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def is_cpu(self) -> bool:
        return True

    def as_numpy(self) -> np.ndarray:
        """The array itself, not a copy. Raises TritonModelException for BF16, which numpy does not have."""
        if self._datatype == "BF16":
            raise TritonModelException("Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead.")
        return self._array

    def triton_dtype(self) -> int:
        """The number of the data type in Triton's table."""
        return number(self._datatype)

    def to_dlpack(self) -> Any:
        return self.__dlpack__()

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        if self._datatype == "BYTES":
            raise TritonModelException("DLPack does not have support for string tensors.")
        if stream is not None:
            options["stream"] = stream
        return dlpack.give(self._array, self._datatype, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """A tensor over the memory of a DLPack capsule, or of an object with ``__dlpack__``: zero-copy, BF16 too.
        Raises TritonModelException when it is not C-contiguous, not in CPU memory, or of an unknown type."""
        array, datatype = dlpack.take(tensor)
        return wrap(_checked(name), array, datatype)


def wrap(name: str, array: np.ndarray, datatype: str) -> Tensor:
    """A tensor around what was checked before: no check, no copy."""
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._array, tensor._datatype = name, array, datatype
    return tensor


def unwrap(tensor: Tensor) -> tuple[np.ndarray, str]:
    """The array as the platform holds it, and its protocol data type: the elements of a BYTES tensor are bytes, strings as UTF-8.
    Raises TritonModelException for a string that has no UTF-8 form."""
    if tensor._datatype != "BYTES":
        return tensor._array, tensor._datatype
    elements = tensor._array.ravel().tolist()
    if tensor._array.dtype.kind == "O" and set(map(type, elements)) <= {bytes}:
        return tensor._array, "BYTES"
    array = np.empty(len(elements), dtype=np.object_)
    try:
        array[:] = [element if isinstance(element, bytes) else str(element).encode() for element in elements]
    except UnicodeEncodeError as error:
        raise TritonModelException(f"tensor '{tensor._name}' holds a string without a UTF-8 form: {error}") from None
    return array.reshape(tensor._array.shape), "BYTES"


def _checked(name: str) -> str:
    if not name:
        raise TritonModelException("Tensor name cannot be an empty string.")
    return name


def _datatype(dtype: np.dtype) -> str:
    if dtype.kind == "U":
        raise TritonModelException("NumPy dtype is not supported.")
    try:
        return protocol_dtype(dtype)
    except InvalidRequest:
        raise TritonModelException("NumPy dtype is not supported.") from None


def _plain(array: np.ndarray) -> np.ndarray:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # Not ascontiguousarray: it gives a scalar a dimension.
    return array if array.flags.c_contiguous else array.copy(order="C")
