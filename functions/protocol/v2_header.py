"""The JSON part of a KServe v2 request, read and checked as far as that needs no model: types, reserved keys, one data source an input."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from functions.errors import InvalidRequest, Unsupported
from functions.protocol.calls import Wanted
from functions.protocol.v2_data import Literal
from functions.tensors import DTYPES

MAX_RANK = 32
"""Most dimensions of a tensor: what every numpy release can hold."""
MAX_INT64, MAX_UINT64 = 2**63 - 1, 2**64 - 1
SEQUENCE_START, SEQUENCE_END = 1, 2

_DECODER = json.JSONDecoder(parse_constant=Literal)
_SOURCES = "'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'"


class InputHead(NamedTuple):
    """One input as announced. Exactly one of ``data`` (JSON) and ``size_bytes`` (of its share of the binary part) is not None."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Any
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Header:
    """What the JSON part says. ``wanted`` is empty when the caller listed no outputs."""

    id: str
    inputs: tuple[InputHead, ...]
    wanted: Mapping[str, Wanted]
    default: Wanted
    parameters: Mapping[str, Any]
    """The caller's own, without the reserved keys."""
    correlation_id: int | str = 0
    flags: int = 0
    priority: int = 0
    timeout_us: int = 0


def parse(text: bytes | memoryview) -> Header:
    """Raises InvalidRequest with Triton's texts; Unsupported for shared memory."""
    root = _json(text)
    members = root if type(root) is dict else {}
    parameters = _members(members.get("parameters", {}))
    default = Wanted(binary=_boolean(parameters, "binary_data_output"))
    heads = tuple(_input(entry) for entry in _list(members, "inputs"))
    wanted = dict(_output(entry, default) for entry in _list(members, "outputs")) if "outputs" in members else {}
    return Header(
        id=_string(members, "id") if "id" in members else "",
        inputs=heads,
        wanted=wanted,
        default=default,
        parameters={key: _parameter(key, value) for key, value in parameters.items() if key not in _RESERVED},
        correlation_id=_correlation_id(parameters.get("sequence_id", 0)),
        flags=SEQUENCE_START * _boolean(parameters, "sequence_start") | SEQUENCE_END * _boolean(parameters, "sequence_end"),
        priority=_unsigned(parameters, "priority", 0),
        timeout_us=_unsigned(parameters, "timeout", 0),
    )


_RESERVED = frozenset(("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output", "headers"))


def _json(text: bytes | memoryview) -> Any:
    try:
        return _DECODER.decode(str(text, "utf-8"))
    except json.JSONDecodeError as error:
        raise _unreadable(f"{error.msg}. at {error.pos}") from None
    except UnicodeDecodeError as error:
        raise _unreadable(f"{error.reason}. at {error.start}") from None
    except RecursionError:
        raise _unreadable("nested too deeply.") from None
    except ValueError as error:  # an integer of more digits than the interpreter converts
        raise _unreadable(f"{error}.") from None


def _input(entry: Any) -> InputHead:
    members = _object(entry, "name")
    name = _string(members, "name")
    shape = _shape(members)
    datatype = _string(members, "datatype")
    if datatype not in DTYPES:
        raise InvalidRequest(f"invalid datatype for input {name}")
    parameters = _members(members.get("parameters", {}))
    sources = ["'data'"] if "data" in members else []
    sources += [f"'{key}'" for key in ("binary_data_size", "shared_memory_region") if key in parameters]
    if len(sources) != 1:
        found = f"But set {' '.join(sources)}" if sources else "But no field is set"
        raise InvalidRequest(f"Input must set only one of the following fields: {_SOURCES}. {found}")
    if "shared_memory_region" in parameters:
        raise Unsupported(f"input '{name}': shared memory is not offered; send the data in the body")
    size = _unsigned(parameters, "binary_data_size", 0) if "binary_data_size" in parameters else None
    return InputHead(name, datatype, shape, members.get("data"), size)


def _output(entry: Any, default: Wanted) -> tuple[str, Wanted]:
    members = _object(entry, "name")
    name = _string(members, "name")
    parameters = _members(members.get("parameters", {}))
    if "shared_memory_region" in parameters:
        for key in ("classification", "binary_data"):
            if key in parameters:
                raise InvalidRequest(f"Output can't set both 'shared_memory_region' and '{key}'")
        raise Unsupported(f"output '{name}': shared memory is not offered; take the data from the body")
    classes = parameters.get("classification", 0)
    if not _is_unsigned(classes):
        raise InvalidRequest("Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer")
    binary = _boolean(parameters, "binary_data") if "binary_data" in parameters else default.binary
    return name, Wanted(binary, classes)


def _shape(members: dict[str, Any]) -> tuple[int, ...]:
    shape = _list(members, "shape")
    for size in shape:
        if type(size) is not int or not 0 <= size <= MAX_INT64:
            raise InvalidRequest("Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer")
    if len(shape) > MAX_RANK:
        raise InvalidRequest(f"Unable to parse 'shape': {len(shape)} dimensions; a tensor has at most {MAX_RANK}")
    # Zeros are counted as ones: numpy refuses [0, 2**62, 2**62] too, although it has no elements.
    if math.prod(max(size, 1) for size in shape) > MAX_INT64 // 8:
        raise InvalidRequest(f"Unable to parse 'shape': {shape} has more elements than any tensor can hold")
    return tuple(shape)


def _parameter(key: str, value: Any) -> Any:
    if key.startswith("triton_"):
        raise InvalidRequest("parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.")
    if isinstance(value, float):
        return float(value)
    if not isinstance(value, (str, bool, int)):
        raise InvalidRequest(f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'.")
    return value


def _correlation_id(value: Any) -> int | str:
    if isinstance(value, str) or _is_unsigned(value):
        sequence: int | str = value
        return sequence
    raise InvalidRequest("Unable to parse 'sequence_id': attempt to access JSON non-string as string")


def _object(entry: Any, key: str) -> dict[str, Any]:
    if type(entry) is not dict:
        raise InvalidRequest(f"Unable to parse '{key}': attempt to access non-existing object member '{key}'")
    return entry


def _members(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise InvalidRequest("failed to get request params.: attempt to get members for non-object")
    return value


def _required(members: dict[str, Any], key: str) -> Any:
    if key not in members:
        raise InvalidRequest(f"Unable to parse '{key}': attempt to access non-existing object member '{key}'")
    return members[key]


def _list(members: dict[str, Any], key: str) -> list[Any]:
    value = _required(members, key)
    if type(value) is not list:
        raise InvalidRequest(f"Unable to parse '{key}': attempt to access JSON non-array as array")
    return value


def _string(members: dict[str, Any], key: str) -> str:
    value = _required(members, key)
    if type(value) is not str:
        raise InvalidRequest(f"Unable to parse '{key}': attempt to access JSON non-string as string")
    return value


def _boolean(members: dict[str, Any], key: str) -> bool:
    value = members.get(key, False)
    if type(value) is not bool:
        raise InvalidRequest(f"Unable to parse '{key}': attempt to access JSON non-boolean as boolean")
    return value


def _unsigned(members: dict[str, Any], key: str, default: int) -> int:
    value: int = members.get(key, default)
    if not _is_unsigned(value):
        raise InvalidRequest(f"Unable to parse '{key}': attempt to access JSON non-unsigned-integer as unsigned-integer")
    return value


def _is_unsigned(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_UINT64


def _unreadable(reason: str) -> InvalidRequest:
    return InvalidRequest(f"failed to parse the request JSON buffer: {reason}")
