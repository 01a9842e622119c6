"""KServe v2 request bodies → calls. Clients repeat themselves: the JSON part of a binary request is checked once and then recognised by
its bytes (without its id, which differs from call to call), so that a known one costs a look-up and the arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from functions.config.spec import ModelConfig
from functions.errors import InvalidRequest, TooLarge
from functions.protocol.calls import DecodedCall, Wanted
from functions.protocol.compression import decompress
from functions.protocol.frames import NO_HEADER, Flag
from functions.protocol.recent import Recent
from functions.protocol.rules import Given, Rules, label
from functions.protocol.v2_data import from_json
from functions.protocol.v2_header import Header, parse
from functions.protocol.v2_raw import Raw
from functions.protocol.v2_tensor import BrokenStrings, from_bytes
from functions.protocol.values import Request
from functions.tensors import itemsize

MAX_JSON = 64 << 20
"""Largest JSON part in bytes."""
_KEPT_ENTRIES, _KEPT_BYTES, _KEPT_HEADER = 512, 1 << 20, 16 << 10
_LEADING_ID = re.compile(rb'\{"id": ?"([^"\\\x00-\x1f]*)", ?')
_ENCODED = int(Flag.GZIP | Flag.DEFLATE)
_ACCEPTED = int(Flag.ACCEPT_GZIP | Flag.ACCEPT_DEFLATE)


class Slice(NamedTuple):
    """Where one binary input lies, from the start of the binary part."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked header, and what is left to do with the body behind it."""

    header: Header
    slices: tuple[Slice, ...]
    binary_bytes: int
    arrays: Mapping[str, np.ndarray]
    """The inputs that were given as JSON."""
    dtypes: Mapping[str, str]
    outputs: tuple[str, ...]


class Decoder:
    """For one model; one thread at a time. ``limit_bytes`` bounds a body after decompression."""

    def __init__(self, config: ModelConfig, rules: Rules, limit_bytes: int) -> None:
        self._name = config.name
        self._rules = rules
        self._limit_bytes = limit_bytes
        self._raw = Raw(config)
        self._plans: Recent[Plan] = Recent(_KEPT_ENTRIES, _KEPT_BYTES)

    def decode(self, body: memoryview, header_length: int, flags: int) -> DecodedCall:
        if flags & _ENCODED:
            body = memoryview(decompress(body, self._limit_bytes))
        accept = flags & _ACCEPTED
        if header_length == 0 or not len(body):
            inputs, dtypes = self._raw.read(body)
            return DecodedCall(Request(inputs, self._rules.outputs, dtypes=dtypes), {}, Wanted(binary=True), accept)
        if header_length == NO_HEADER:
            header_length = len(body)
        elif header_length > len(body):
            raise InvalidRequest(f"inference header size should be in range (0, {len(body)}), got: {header_length}")
        id, plan = self._plan(body, header_length)
        header = plan.header
        request = Request(
            self._inputs(plan, body, header_length, id),
            plan.outputs,
            id,
            dict(header.parameters),
            dict(plan.dtypes),
            correlation_id=header.correlation_id,
            flags=header.flags,
            timeout_us=header.timeout_us,
            priority=header.priority,
        )
        return DecodedCall(request, header.wanted, header.default, accept)

    def _plan(self, body: memoryview, header_length: int) -> tuple[str, Plan]:
        if header_length > MAX_JSON:
            raise TooLarge(f"{header_length} bytes of JSON for model '{self._name}'; the limit is {MAX_JSON}")
        if header_length > _KEPT_HEADER:
            plan = self._make(parse(body[:header_length]))
            return plan.header.id, plan
        text = bytes(body[:header_length])
        known = self._plans.get(text)
        if known is not None:
            return "", known  # Keys are texts without an id.
        id, key = _without_id(text)
        known = self._plans.get(key) if key else None
        if known is not None:
            return id, known
        plan = self._make(parse(text))
        if key and plan.slices and not plan.arrays:
            self._plans.put(key, plan)
        return plan.header.id, plan

    def _make(self, header: Header) -> Plan:
        arrays: dict[str, np.ndarray] = {}
        slices: list[Slice] = []
        given: dict[str, Given] = {}
        position = 0
        for head in header.inputs:
            if head.name in given:
                raise InvalidRequest(f"input '{head.name}' already exists in request")
            given[head.name] = Given(head.datatype, head.shape)
            if head.size_bytes is None:
                arrays[head.name] = from_json(head.data, head.datatype, head.shape, head.name)
            else:
                slices.append(Slice(head.name, head.datatype, head.shape, position, head.size_bytes))
                position += head.size_bytes
        outputs = self._rules.wanted(header.wanted)
        self._rules.check(given, header.id)
        for part in slices:
            expected = math.prod(part.shape) * itemsize(part.datatype)
            if expected != part.size_bytes and part.datatype != "BYTES":
                raise self._rules.mismatch(part.name, expected, part.size_bytes, header.id)
        self._check_forms(header, outputs)
        # The JSON lists are in ``arrays`` now; the header need not keep them.
        header = replace(header, inputs=())
        return Plan(header, tuple(slices), position, arrays, {name: each.datatype for name, each in given.items()}, outputs)

    def _check_forms(self, header: Header, outputs: tuple[str, ...]) -> None:
        """Refuses before the model runs what the encoder would have to refuse after: half floats have no JSON form."""
        for name in outputs:
            datatype = self._rules.output_dtypes[name]
            wanted = header.wanted.get(name, header.default)
            if datatype in ("FP16", "BF16") and not wanted.binary and not wanted.classes:
                raise InvalidRequest(f"sending {datatype} data via JSON is not supported. Please use the binary data format for output")

    def _inputs(self, plan: Plan, body: memoryview, start: int, id: str) -> dict[str, np.ndarray]:
        lacking = plan.binary_bytes - (len(body) - start)
        if lacking:
            raise self._wrong_size(plan, lacking)
        inputs = dict(plan.arrays)
        for name, datatype, shape, offset, size_bytes in plan.slices:
            try:
                inputs[name] = from_bytes(body, start + offset, size_bytes, datatype, shape)
            except BrokenStrings as error:
                raise InvalidRequest(f"{label(id)}{error.text(name, self._name)}") from None
        return inputs

    def _wrong_size(self, plan: Plan, lacking: int) -> InvalidRequest:
        if lacking < 0:
            return InvalidRequest(f"unexpected additional input data for model '{self._name}'")
        present = plan.binary_bytes - lacking
        short = next(part for part in plan.slices if part.start + part.size_bytes > present)
        missing = short.size_bytes - max(0, present - short.start)
        return InvalidRequest(f"unexpected size for input '{short.name}', expecting {missing} additional bytes for model '{self._name}'")


def _without_id(text: bytes) -> tuple[str, bytes]:
    """A leading ``"id"`` member and the text without it, the key of its plan; the key is empty where the text must not be recognised
    by it: another id may follow (spelled plainly or with escapes), or the id itself needs the full parser."""
    found = _LEADING_ID.match(text)
    id, key = "", text
    if found is not None:
        try:
            id, key = found[1].decode(), b"{" + text[found.end() :]
        except UnicodeDecodeError:
            return "", b""
    return (id, b"") if b'"id"' in key or b"\\" in key else (id, key)
