"""The bodies of an outcall: a request as any KServe v2 server reads it, and an answer whose model is not known here."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from functions.errors import InvalidRequest, ProtocolError
from functions.protocol.frames import NO_HEADER
from functions.protocol.v2_header import SEQUENCE_END, SEQUENCE_START
from functions.protocol.v2_tensor import BrokenStrings, from_bytes, to_bytes
from functions.protocol.values import Request, Response
from functions.tensors import DTYPES, protocol_dtype


def request_body(request: Request) -> tuple[list[bytes], int]:
    """The request with all tensors binary, and binary outputs asked for → parts of the body, header length.
    Raises InvalidRequest for an array that the protocol has no type for, ModelFailed for a string that is not UTF-8."""
    inputs, tails = [], []
    for name, array in request.inputs.items():
        datatype = request.dtypes.get(name) or protocol_dtype(array.dtype)
        tail = to_bytes(np.ascontiguousarray(array), datatype, name)
        inputs.append({"name": name, "datatype": datatype, "shape": array.shape, "parameters": {"binary_data_size": len(tail)}})
        tails.append(tail)
    header: dict[str, Any] = {"inputs": inputs, "parameters": {**request.parameters, **_reserved(request), "binary_data_output": True}}
    if request.id:
        header["id"] = request.id
    if request.outputs:
        header["outputs"] = [{"name": name} for name in request.outputs]
    head = json.dumps(header, separators=(",", ":")).encode()
    return [head, *tails], len(head)


def response(header_length: int, body: memoryview) -> Response:
    """The answer that a RESULT carries. Raises ProtocolError when it is not one: a router sent it."""
    head = body if header_length == NO_HEADER else body[:header_length]
    position = len(head)
    answer = Response()
    try:
        header = json.loads(bytes(head))
        answer.parameters = header.get("parameters", {})
        for output in header["outputs"]:
            name, datatype, shape = output["name"], output["datatype"], tuple(output["shape"])
            size_bytes = output.get("parameters", {}).get("binary_data_size")
            if size_bytes is None:
                answer.outputs[name] = _listed(output["data"], datatype, shape)
            else:
                _check_size(name, datatype, shape, size_bytes, len(body) - position)
                answer.outputs[name] = from_bytes(body, position, size_bytes, datatype, shape)
                position += size_bytes
            answer.dtypes[name] = datatype
    except (ValueError, KeyError, TypeError, AttributeError, InvalidRequest, BrokenStrings) as error:
        raise ProtocolError(f"a RESULT that is not a KServe v2 answer: {type(error).__name__}: {error}") from error
    return answer


def _check_size(name: str, datatype: str, shape: tuple[int, ...], size_bytes: int, left: int) -> None:
    fits = 0 <= size_bytes <= left and all(size >= 0 for size in shape)
    if not fits or (datatype != "BYTES" and size_bytes != math.prod(shape) * DTYPES[datatype].itemsize):
        raise ProtocolError(f"a RESULT whose output {name!r} of {datatype} {list(shape)} has {size_bytes} bytes, of {left} that follow")


def _reserved(request: Request) -> dict[str, Any]:
    """The request's own fields that travel among its parameters."""
    fields: dict[str, Any] = {}
    if request.correlation_id:
        fields["sequence_id"] = request.correlation_id
        fields["sequence_start"] = bool(request.flags & SEQUENCE_START)
        fields["sequence_end"] = bool(request.flags & SEQUENCE_END)
    if request.timeout_us:
        fields["timeout"] = request.timeout_us
    if request.priority:
        fields["priority"] = request.priority
    return fields


def _listed(data: list[Any], datatype: str, shape: tuple[int, ...]) -> np.ndarray:
    if datatype != "BYTES":
        return np.array(data, dtype=DTYPES[datatype].numpy).reshape(shape)
    array = np.empty(len(data), dtype=np.object_)
    array[:] = [element.encode() for element in data]
    return array.reshape(shape)
