"""DLPack in and out of CPU memory, on ctypes alone.

numpy's own functions are not enough: they know no BF16, take no bare capsule, and mark what they imported as read-only or
not by version. And what they export is trusted blindly on the other side: torch turns a read-only array into a writable
alias, and a negative stride aborts the process. So everything here is C-contiguous, and writable only when it truly is.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, Protocol

import numpy as np

from functions.python_api.errors import TritonModelException
from functions.tensors import DTYPES

CPU = (1, 0)
"""``__dlpack_device__`` of every tensor here: kDLCPU, device 0."""
_READ_ONLY = 1
_CODES = {"INT": 0, "UINT": 1, "FP": 2, "BF": 4}
_BOOL = 6


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor: the capsules called ``dltensor``."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned: those called ``dltensor_versioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_LEGACY = b"dltensor"
_NAMES: dict[bytes, tuple[type[_Managed] | type[_Versioned], bytes]] = {
    _LEGACY: (_Managed, b"used_dltensor"),
    b"dltensor_versioned": (_Versioned, b"used_dltensor_versioned"),
}


def _python(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_name = _python("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_dying_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_dying_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)


class _Exporter(Protocol):
    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


class _Lent:
    """Memory that another library lent: numpy keeps this object alive as the base of the array, and it gives the memory back."""

    def __init__(self, owner: _Managed | _Versioned, address: int, interface: dict[str, Any]) -> None:
        self._owner, self._address = owner, address
        self.__array_interface__ = interface

    def __del__(self) -> None:
        if self._owner.deleter:
            self._owner.deleter(self._address)


def take(source: _Exporter | Any) -> tuple[np.ndarray, str]:
    """The array of a capsule, or of an object with ``__dlpack__`` and ``__dlpack_device__``, and its protocol data type. No copy is
    made, unless the exporter says that its memory must not be written. Raises TritonModelException for what is not in CPU
    memory, not C-contiguous, or of a type without a name in the protocol; the source then stays usable."""
    capsule = _capsule(source)
    name = _name(capsule)
    if name not in _NAMES:
        raise TritonModelException(f"the DLPack capsule {name!r} was used before; a capsule can be taken once")
    kind, used = _NAMES[name]
    address = _pointer(capsule, name)
    owner = kind.from_address(address)
    tensor = owner.tensor
    if tensor.device_type != CPU[0]:
        raise TritonModelException(_elsewhere(tensor.device_type, tensor.device_id))
    datatype = _datatype(tensor.dtype)
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides and not _contiguous(shape, tuple(tensor.strides[: tensor.ndim])):
        raise TritonModelException(
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
        )
    _rename(capsule, used)
    dtype = DTYPES[datatype].numpy
    if not tensor.data or 0 in shape:
        _Lent(owner, address, {})  # gives the memory, which nobody needs, back at once
        return np.empty(shape, dtype), datatype
    place = (tensor.data + tensor.byte_offset, False)
    array = np.asarray(_Lent(owner, address, {"version": 3, "data": place, "shape": shape, "typestr": dtype.str}))
    read_only = isinstance(owner, _Versioned) and owner.flags & _READ_ONLY
    return array.copy() if read_only else array, datatype


def give(array: np.ndarray, datatype: str, **options: Any) -> Any:
    """A capsule over a C-contiguous array. ``options`` are those of ``__dlpack__``. A read-only array is copied first, since
    consumers write through what they import."""
    if not array.flags.writeable:
        array = array.copy()
    return _give_bf16(array) if datatype == "BF16" else array.__dlpack__(**options)


def _capsule(source: Any) -> Any:
    if type(source).__name__ == "PyCapsule":
        return source
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise TritonModelException(
            "Provided tensor is not supported. Tensor must be a DLPack capsule or have `__dlpack__` and `__dlpack_device__` attributes"
        )
    device_type, device_id = source.__dlpack_device__()
    if int(device_type) != CPU[0]:
        raise TritonModelException(_elsewhere(int(device_type), device_id))
    try:
        return source.__dlpack__(max_version=(1, 0))
    except TypeError:  # an exporter from before DLPack 1.0
        return source.__dlpack__()


def _elsewhere(device_type: int, device_id: int) -> str:
    return f"the DLPack tensor lies on device ({device_type}, {device_id}); this release holds tensors in CPU memory (1, 0) only"


def _datatype(dtype: _DataType) -> str:
    if dtype.lanes == 1:
        if (dtype.code, dtype.bits) == (_BOOL, 8):
            return "BOOL"
        for prefix, code in _CODES.items():
            if code == dtype.code and f"{prefix}{dtype.bits}" in DTYPES:
                return f"{prefix}{dtype.bits}"
    raise TritonModelException(
        f"DLPack data type of code {dtype.code}, {dtype.bits} bits, {dtype.lanes} lanes is not supported; the types are {', '.join(DTYPES)}"
    )


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


_given: dict[int, tuple[Any, ...]] = {}
"""Our BF16 exports that a consumer has not given back, by the address of their _Managed."""


def _forget(address: int) -> None:
    _given.pop(address, None)


def _forget_unused(capsule: int) -> None:
    # Called with a capsule whose count is already zero: it must not be turned into a Python object again.
    if _dying_valid(capsule, _LEGACY):
        _given.pop(_dying_pointer(capsule, _LEGACY), None)


_given_back, _capsule_dies = _Deleter(_forget), _Deleter(_forget_unused)


def _give_bf16(array: np.ndarray) -> Any:
    sizes = ctypes.c_int64 * max(array.ndim, 1)
    shape = sizes(*array.shape)
    strides = sizes(*(math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)))
    tensor = _Tensor(array.ctypes.data, *CPU, array.ndim, _DataType(_CODES["BF"], 16, 1), shape, strides, 0)
    managed = _Managed(tensor, None, _given_back)
    address = ctypes.addressof(managed)
    _given[address] = (managed, array, shape, strides)
    return _new(address, _LEGACY, ctypes.cast(_capsule_dies, ctypes.c_void_p))
