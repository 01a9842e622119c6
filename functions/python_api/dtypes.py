"""Data types by the names and numbers of the Python backend API, and the look-ups of tensors and of their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from functions.errors import InvalidRequest
from functions.python_api.errors import TritonModelException
from functions.tensors import DTYPES, decode_bytes, encode_bytes

if TYPE_CHECKING:
    from functions.python_api.request import InferenceRequest
    from functions.python_api.response import InferenceResponse
    from functions.python_api.tensor import Tensor

_SCALARS: dict[str, type] = {
    row.config: bool if row.protocol == "BOOL" else row.numpy.type for row in DTYPES.values() if row.protocol != "BF16"
}
TRITON_STRING_TO_NUMPY: dict[str, type] = _SCALARS
"""``TYPE_FP32`` → ``numpy.float32``. No BF16: numpy has none."""
_NUMBERS = {protocol: place for place, protocol in enumerate(DTYPES, start=1)}
_BY_NUMBER = {_NUMBERS[row.protocol]: _SCALARS[row.config] for row in DTYPES.values() if row.protocol != "BF16"}


def number(protocol: str) -> int:
    """``FP32`` → 11: its number in Triton's enumeration."""
    return _NUMBERS[protocol]


def triton_to_numpy_type(data_type: int) -> type:
    """11 → ``numpy.float32``. Raises KeyError for a number without a numpy type (0, BF16)."""
    return _BY_NUMBER[data_type]


def numpy_to_triton_type(data_type: Any) -> int:
    """``numpy.float32`` → 11. Raises KeyError for a type that Triton has no number for."""
    dtype = np.dtype(data_type)
    if dtype.kind == "S":
        return _NUMBERS["BYTES"]
    for row in DTYPES.values():
        if row.protocol != "BF16" and row.numpy == dtype:
            return _NUMBERS[row.protocol]
    raise KeyError(data_type)


def triton_string_to_numpy(triton_type_string: str) -> type:
    """``"TYPE_FP32"`` → ``numpy.float32``. Raises KeyError, for ``"TYPE_BF16"`` too."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def serialize_byte_tensor(input_tensor: np.ndarray) -> bytes | tuple[()] | None:
    """A BYTES tensor as it travels; like Triton's function ``()`` for an empty one and None for one that holds no bytes."""
    if input_tensor.size == 0:
        return ()
    return encode_bytes(input_tensor) if input_tensor.dtype.kind in "OS" else None


def deserialize_bytes_tensor(encoded_tensor: bytes) -> np.ndarray:
    """All strings of the travelling form, as a flat object array of bytes. Raises TritonModelException when they do not add up."""
    view = memoryview(encoded_tensor).cast("B")
    count = position = 0
    while position + 4 <= len(view):
        position += 4 + int.from_bytes(view[position : position + 4], "little")
        count += 1
    try:
        return decode_bytes(view, count)
    except InvalidRequest as error:
        raise TritonModelException(error.message) from None


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The input of that name, or None."""
    for tensor in inference_request.inputs():
        if tensor._name == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The output of that name, or None. Ask ``has_error()`` first."""
    for tensor in inference_response.output_tensors():
        if tensor._name == name:
            return tensor
    return None


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The entry of ``input`` with that name, or None."""
    return next((entry for entry in model_config.get("input", ()) if entry["name"] == name), None)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The entry of ``output`` with that name, or None."""
    return next((entry for entry in model_config.get("output", ()) if entry["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Whether the configuration says ``model_transaction_policy { decoupled: true }``."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))
