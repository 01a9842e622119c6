"""Reading ``config.pbtxt``: protobuf text format in, Triton's JSON form out.

The JSON form is a plain dictionary with the proto's own field names: enums by name, every scalar and list present with its
default, messages and members of a oneof only where they were set, 64-bit integers as numbers except the four kinds that
Triton prints as strings. Used by the inspection process, the CLI and the registry; a replica never parses text.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from google.protobuf import json_format, message_factory, text_format
from google.protobuf.message import Message

from functions.config import model_config_pb2
from functions.errors import BundleRefused

MAX_CHARACTERS = 1 << 20
"""Longest text read; the largest real configurations have some ten thousand characters."""

_ModelConfig = message_factory.GetMessageClass(model_config_pb2.DESCRIPTOR.message_types_by_name["ModelConfig"])

_STRING_INTS = {
    "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
    "inference.ModelSequenceBatching.InitialState.dims",
    "inference.ModelInstanceGroup.SecondaryDevice.device_id",
}

# One alternative a kind of token, so that what stands inside strings and comments is never taken for a number. The closing
# quote may be missing, so that a broken string is scanned once; the reader refuses it.
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)"""
    r"""|\#[^\n]*"""
    r"""|-(?P<gap>\s+)(?=[0-9.])"""
    r"""|(?P<number>(?<![\w.])[+-]?\.?[0-9][\w.+-]*)"""
)
_ESCAPE = re.compile(
    r"""\\(?:[abfnrtv\\'"]|[0-3]?[0-7]{1,2}|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|\\(?P<wrong>.?)""", re.DOTALL
)
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)")
_UNKNOWN = re.compile(r'Message type "(?P<message>[\w.]+)" has no field named "(?P<field>\w+)"')


def parse(text: str, source: str = "config.pbtxt") -> dict[str, Any]:
    """The JSON form of a configuration in text. Raises BundleRefused, its ``field`` being ``<source>:<line>:<column>``."""
    if len(text) > MAX_CHARACTERS:
        raise BundleRefused(f"{len(text)} characters; the limit is {MAX_CHARACTERS}", field=source)
    message = _ModelConfig()
    try:
        text_format.Parse(_as_protoc_reads(text, source), message)
    except text_format.ParseError as error:
        raise _refusal(error, text, source) from error
    return to_json(message)


def complete(config: dict[str, Any], source: str = "config.pbtxt") -> dict[str, Any]:
    """The same configuration with every default filled in and its keys in Triton's order, from a dictionary that may lack
    some of them. Raises BundleRefused for unknown fields and values of a wrong type."""
    message = _ModelConfig()
    try:
        json_format.ParseDict(config, message)
    except (json_format.ParseError, ValueError, TypeError) as error:
        raise BundleRefused(f"not a model configuration: {error}", field=source) from error
    return to_json(message)


def to_json(message: Message) -> dict[str, Any]:
    """The JSON form of any message of the configuration. Raises BundleRefused for an enum's number that has no name."""
    fields = (field for field in message.DESCRIPTOR.fields if not field.has_presence or message.HasField(field.name))
    return {field.name: _field(getattr(message, field.name), field) for field in fields}


def _field(value: Any, field: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        item = field.message_type.fields_by_name["value"]
        return {str(key): _value(value[key], item) for key in sorted(value)}
    if field.is_repeated:
        return [_value(item, field) for item in value]
    return _value(value, field)


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return to_json(value)
    if field.enum_type is not None:
        if value not in field.enum_type.values_by_number:
            names = ", ".join(known.name for known in field.enum_type.values)
            raise BundleRefused(f"{value} is no {field.enum_type.name}", field=f"config.pbtxt: {field.name}", fix=f"one of {names}")
        return field.enum_type.values_by_number[value].name
    return str(value) if field.full_name in _STRING_INTS else value


def _as_protoc_reads(text: str, source: str) -> str:
    """The text with what Python's reader takes differently from the C++ one, whose dialect authors know, made equal or refused:
    a minus may stand apart from its number; numbers have no underscores, plus signs or Python prefixes; strings hold
    characters and C's escapes only. No line changes its number."""

    def refuse(reason: str, position: int) -> BundleRefused:
        return BundleRefused(reason, field=f"{source}:{_place(text, position)}")

    def replace(match: re.Match[str]) -> str:
        token = match[0]
        if match["string"]:
            for escape in _ESCAPE.finditer(token):
                if escape["wrong"] == "?":
                    token = token.replace("\\?", "?")
                elif escape["wrong"] is not None:
                    raise refuse(f"{escape[0]!r} is no escape sequence", match.start() + escape.start())
        elif match["gap"]:
            return match["gap"] + "-"
        elif match["number"] and not _NUMBER.fullmatch(token):
            raise refuse(f"{token[:40]!r} is not a number", match.start())
        return token

    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise refuse("not UTF-8", error.start) from error
    return _TOKEN.sub(replace, text)


def _place(text: str, position: int) -> str:
    line_start = text.rfind("\n", 0, position) + 1
    return f"{text.count(chr(10), 0, position) + 1}:{position - line_start + 1}"


def _refusal(error: text_format.ParseError, text: str, source: str) -> BundleRefused:
    line, column, reason = error.GetLine(), error.GetColumn(), str(error)
    field = source
    if line is not None:
        field = f"{source}:{line}:{column or 1}"
        # The reader repeats place and line, which may be of any length.
        reason = reason.removeprefix(f"{line}:{column} : ").removeprefix(f"'{text.split(chr(10))[line - 1]}': ")
    unknown = _UNKNOWN.search(reason)
    if unknown is None:
        return BundleRefused(reason.replace("inference.", "")[:300], field=field)
    message = model_config_pb2.DESCRIPTOR.pool.FindMessageTypeByName(unknown["message"])
    close = difflib.get_close_matches(unknown["field"], [known.name for known in message.fields], n=1)
    fix = f"did you mean {close[0]!r}?" if close else "remove it"
    return BundleRefused(f"{message.name} has no field {unknown['field'][:80]!r}", field=field, fix=fix)
