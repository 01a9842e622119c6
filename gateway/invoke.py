"""An infer request from what a person types, checked against the function's metadata before anything is sent; and its answer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
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
        if entry["name"] in values:
            raise InvalidRequest(f"input {entry['name']!r} is given twice")
        declared = next((tensor for tensor in metadata["inputs"] if tensor["name"] == entry["name"]), None)
        if declared is not None and declared["datatype"] != entry["datatype"]:
            raise InvalidRequest(f"input {entry['name']!r} is {declared['datatype']}, not {entry['datatype']}")
        values[entry["name"]] = _reshaped(entry)
    return from_values(metadata, values)


def from_typed(metadata: Mapping[str, Any], texts: Sequence[str]) -> list[Tensor]:
    """Inputs as typed, each ``NAME=VALUE``: VALUE is JSON, ``@file`` for a file of JSON, or, for BYTES, a string. Raises InvalidRequest
    as ``from_values`` does, and for an input that is given twice."""
    datatypes = {tensor["name"]: tensor["datatype"] for tensor in metadata["inputs"]}
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{text[:200]!r} is not NAME=VALUE")
        if name in values:
            raise InvalidRequest(f"input {name!r} is given twice")
        values[name] = _typed(name, value, datatypes.get(name, "BYTES"))
    return from_values(metadata, values)


def parsed(text: str | bytes, source: str) -> Any:
    """JSON, of which every number is one. Raises InvalidRequest naming ``source`` and the place in it."""
    try:
        return json.loads(text, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{source}: not JSON: {error}") from None


def batch(tensors: Sequence[Tensor], metadata: Mapping[str, Any]) -> int:
    """The largest first dimension of an input whose function leaves it open: its batch, where the function takes batches."""
    open_ = {tensor["name"] for tensor in metadata["inputs"] if tensor["shape"][:1] == [-1]}
    return max((tensor.array.shape[0] for tensor in tensors if tensor.name in open_), default=1)


def check_batch(size: int, config: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for a batch that is larger than the function's configuration takes."""
    most = config.get("max_batch_size", 0)
    if 0 < most < size:
        raise InvalidRequest(f"a batch of {size}: {config['name']} takes at most {most} (max_batch_size)")


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


def _typed(name: str, value: str, datatype: str) -> Any:
    if value.startswith("@"):
        path = Path(value[1:])
        try:
            return parsed(path.read_bytes(), f"{name}: {path}")
        except OSError as error:
            raise InvalidRequest(f"{name}: {path} cannot be read: {error.strerror}") from None
    try:
        return parsed(value, name)
    except InvalidRequest:
        if datatype == "BYTES":
            return value
        raise


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidRequest(f"{text[:40]} is out of the range of every type")
    return value


def _tensor(declared: Mapping[str, Any], value: Any) -> Tensor:
    name, datatype, shape = declared["name"], declared["datatype"], declared["shape"]
    try:
        array = np.array(value, dtype=object) if datatype == "BYTES" else np.array(value)
    except ValueError:
        raise InvalidRequest(f"input {name!r}: its rows differ in length") from None
    if _fitted(array, shape) is None:
        raise InvalidRequest(f"input {name!r}: a value of shape {list(array.shape)} does not fit {shape}")
    try:
        array = _converted(datatype, array, value)
    except _Misfit as misfit:
        raise InvalidRequest(f"input {name!r} is {datatype}: {misfit}") from None
    fitted = _fitted(array, shape)
    assert fitted is not None
    return Tensor(name, datatype, fitted)


def _fitted(array: np.ndarray, shape: list[int]) -> np.ndarray | None:
    """The array in the declared shape: as it is, or with leading dimensions of 1 put in front; None where neither fits."""
    if array.ndim < len(shape):
        array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    fits = array.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, array.shape, strict=True))
    return array if fits else None


class _Misfit(Exception):
    """An element that the datatype does not have."""

    def __init__(self, array: np.ndarray, wrong: np.ndarray, why: str) -> None:
        """The first element of ``array`` where ``wrong`` is true, by its place in what was given."""
        index = tuple(int(number) for number in np.argwhere(wrong)[0])
        place = f"element {list(index)}, " if index else ""
        element = array[index]
        super().__init__(f"{place}{repr(element.item() if isinstance(element, np.generic) else element)[:80]}, {why}")


def _converted(datatype: str, array: np.ndarray, value: Any) -> np.ndarray:
    """``array``, made of ``value``, in the datatype's own type. Raises _Misfit."""
    if datatype == "BYTES":
        return _checked(array, (str, bytes), "is not: its elements must be strings")
    if datatype == "BOOL":
        return array if array.dtype == bool else _checked(np.array(value, dtype=object), (bool, np.bool_), "is not").astype(bool)
    whole = datatype in _WHOLE
    if array.size and array.dtype.kind not in ("iu" if whole else "iuf"):  # another type's, or whole numbers of more than 64 bits
        array = _checked(np.array(value, dtype=object), (int,) if whole else (int, float), "is not")
    wanted = numpy_dtype(datatype)
    return _whole(array, wanted) if whole else _float(array, wanted)


def _checked(array: np.ndarray, kinds: tuple[type, ...], why: str) -> np.ndarray:
    """The array, of which every element is one of ``kinds``; True and False are no numbers."""
    wrong = [not isinstance(element, kinds) or (isinstance(element, bool) and bool not in kinds) for element in array.ravel().tolist()]
    if any(wrong):
        raise _Misfit(array, np.array(wrong).reshape(array.shape), why)
    return array


def _whole(array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    limits = np.iinfo(wanted)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        exact = array.astype(object)
        raise _Misfit(exact, (exact < int(limits.min)) | (exact > int(limits.max)), f"is not from {limits.min} to {limits.max}")
    return array.astype(wanted)


def _float(array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    most = float(np.finfo(wanted).max)
    if array.dtype == object:  # Python's whole numbers may be larger than any float.
        huge = np.array([abs(element) > most for element in array.ravel().tolist()]).reshape(array.shape)
        if huge.any():
            raise _Misfit(array, huge, f"is not from {-most:g} to {most:g}")
    with np.errstate(over="ignore"):
        converted = array.astype(wanted)
    lost = np.isinf(converted) & ~np.isinf(array.astype(np.float64))
    if lost.any():
        raise _Misfit(array, lost, f"is not from {-most:g} to {most:g}")
    return converted


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


def _elements(shape: list[int]) -> int:
    return math.prod(1 if size == -1 else size for size in shape)


def _signature(metadata: Mapping[str, Any]) -> str:
    return ", ".join(f"{tensor['name']} {tensor['datatype']}{tensor['shape']}" for tensor in metadata["inputs"])
