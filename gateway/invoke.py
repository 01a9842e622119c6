"""An infer request from what a person types, checked against the function's metadata before anything is sent; and its answer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from functions.errors import InvalidRequest
from functions.tensors import decode_bytes, encode_bytes, itemsize, numpy_dtype

_WHOLE = {"UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "BF16"}


class Tensor:
    """One input, ready to send."""

    __slots__ = ("array", "datatype", "name")

    def __init__(self, name: str, datatype: str, array: np.ndarray) -> None:
        self.name, self.datatype, self.array = name, datatype, array

    def data(self) -> bytes:
        if self.datatype == "BYTES":
            return encode_bytes(self.array)
        return self.array.astype(self.array.dtype.newbyteorder("<"), order="C").tobytes()


def from_values(metadata: Mapping[str, Any], values: Mapping[str, Any]) -> list[Tensor]:
    """Inputs by name as JSON values (nested lists, or one value where a shape allows it). Raises InvalidRequest naming the
    input: unknown, missing, of another type or shape."""
    declared = {tensor["name"]: tensor for tensor in metadata["inputs"]}
    unknown = sorted(values.keys() - declared.keys())
    if unknown:
        raise InvalidRequest(f"{metadata['name']} has no input {unknown[0]!r}; its inputs are {_signature(metadata)}")
    return [_tensor(declared[name], value) for name, value in values.items()]


def from_image(metadata: Mapping[str, Any], data: bytes) -> list[Tensor]:
    """An encoded picture, for a function that takes one as a string of bytes. Raises InvalidRequest for any other."""
    takers = [tensor for tensor in metadata["inputs"] if tensor["datatype"] == "BYTES" and _elements(tensor["shape"]) == 1]
    if len(takers) != 1 or len(metadata["inputs"]) != 1:
        raise InvalidRequest(f"{metadata['name']} does not take one encoded picture; its inputs are {_signature(metadata)}")
    shape = [1 if size == -1 else size for size in takers[0]["shape"]]
    array = np.empty(1, dtype=object)
    array[0] = data
    return [Tensor(takers[0]["name"], "BYTES", array.reshape(shape))]


def from_request(metadata: Mapping[str, Any], request: Any) -> list[Tensor]:
    """A KServe v2 request (``{"inputs": […]}``), or ``{input: value}``. Raises InvalidRequest."""
    if not isinstance(request, dict):
        raise InvalidRequest("the JSON is not an object")
    if not isinstance(request.get("inputs"), list):
        return from_values(metadata, request)
    values: dict[str, Any] = {}
    for entry in request["inputs"]:
        if not isinstance(entry, dict) or not {"name", "shape", "datatype", "data"} <= entry.keys():
            raise InvalidRequest("an entry of inputs lacks name, shape, datatype or data")
        declared = next((tensor for tensor in metadata["inputs"] if tensor["name"] == entry["name"]), None)
        if declared is not None and declared["datatype"] != entry["datatype"]:
            raise InvalidRequest(f"input {entry['name']!r} is {declared['datatype']}, not {entry['datatype']}")
        values[entry["name"]] = _reshaped(entry)
    return from_values(metadata, values)


def typed(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` as typed: VALUE is JSON, ``@file`` for a file of JSON, or else a string. Raises InvalidRequest."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidRequest(f"{text[:200]!r} is not NAME=VALUE")
    if value.startswith("@"):
        path = Path(value[1:])
        try:
            value = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{name}: {path} cannot be read: {error}") from None
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def encode(tensors: list[Tensor], missing_from: Mapping[str, Any]) -> tuple[bytes, int]:
    """The body and the length of its JSON header. Raises InvalidRequest when an input is missing."""
    given = {tensor.name for tensor in tensors}
    lacking = [tensor["name"] for tensor in missing_from["inputs"] if tensor["name"] not in given]
    if lacking and len(lacking) == len(missing_from["inputs"]):
        raise InvalidRequest(f"no input is given; {missing_from['name']} takes {_signature(missing_from)}")
    parts = [tensor.data() for tensor in tensors]
    inputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.array.shape),
            "parameters": {"binary_data_size": len(data)},
        }
        for tensor, data in zip(tensors, parts, strict=True)
    ]
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return b"".join([header, *parts]), len(header)


def decode(body: bytes, header_length: int | None) -> dict[str, Any]:
    """An answer as plain JSON values: outputs by name with datatype, shape and data; bytes that are no text as ``{"bytes": n}``."""
    length = len(body) if header_length is None else header_length
    answer: dict[str, Any] = json.loads(body[:length])
    offset = length
    for output in answer["outputs"]:
        size = output.get("parameters", {}).pop("binary_data_size", None)
        if not output.get("parameters"):
            output.pop("parameters", None)
        if size is not None:
            output["data"] = _values(output["datatype"], output["shape"], memoryview(body)[offset : offset + size])
            offset += size
    return answer


def _tensor(declared: Mapping[str, Any], value: Any) -> Tensor:
    name, datatype, shape = declared["name"], declared["datatype"], declared["shape"]
    try:
        array = np.array(value, dtype=object) if datatype == "BYTES" else np.array(value)
    except ValueError:
        raise InvalidRequest(f"input {name!r}: its rows differ in length") from None
    fitted = _fitted(array, shape)
    if fitted is None:
        raise InvalidRequest(f"input {name!r}: a value of shape {list(np.shape(value))} does not fit {shape}")
    return Tensor(name, datatype, _converted(name, datatype, fitted))


def _fitted(array: np.ndarray, shape: list[int]) -> np.ndarray | None:
    """The array in the declared shape: as it is, or with leading dimensions of 1 put in front; None where neither fits."""
    if array.ndim < len(shape):
        array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    fits = array.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, array.shape, strict=True))
    return array if fits else None


def _converted(name: str, datatype: str, array: np.ndarray) -> np.ndarray:
    if datatype == "BYTES":
        if not all(isinstance(element, str | bytes) for element in array.ravel().tolist()):
            raise InvalidRequest(f"input {name!r} is BYTES: its elements must be strings")
        return array
    kinds = "b" if datatype == "BOOL" else "iu" if datatype in _WHOLE else "iuf"
    if array.size and array.dtype.kind not in kinds:
        raise InvalidRequest(f"input {name!r} is {datatype}: {_example(array)!r} is not")
    wanted = numpy_dtype(datatype)
    if kinds == "iu" and array.size:
        limits = np.iinfo(wanted)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise InvalidRequest(f"input {name!r} is {datatype}: its values go from {limits.min} to {limits.max}")
    return array.astype(wanted)


def _reshaped(entry: Mapping[str, Any]) -> Any:
    """The data of one v2 input, which may be flat, as nested lists of its shape."""
    array = np.array(entry["data"], dtype=object).ravel()
    shape = entry["shape"]
    if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape) or math.prod(shape) != array.size:
        raise InvalidRequest(f"input {entry['name']!r}: {array.size} values do not make the shape {shape}")
    return array.reshape(shape).tolist()


def _values(datatype: str, shape: list[int], view: memoryview) -> list[Any]:
    if datatype == "BYTES":
        return [_text(element) for element in decode_bytes(view, math.prod(shape))]
    count = len(view) // itemsize(datatype)
    return list(np.frombuffer(view, numpy_dtype(datatype).newbyteorder("<"), count).tolist())


def _text(element: bytes) -> Any:
    try:
        return element.decode()
    except UnicodeDecodeError:
        return {"bytes": len(element)}


def _example(array: np.ndarray) -> Any:
    return array.ravel()[0].item() if array.dtype != object else array.ravel()[0]


def _elements(shape: list[int]) -> int:
    return math.prod(1 if size == -1 else size for size in shape)


def _signature(metadata: Mapping[str, Any]) -> str:
    return ", ".join(f"{tensor['name']} {tensor['datatype']}{tensor['shape']}" for tensor in metadata["inputs"])
