"""Whatever bytes arrive, the codec answers with a call or with the caller's error, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from functions.errors import CallerError
from functions.protocol.calls import DecodedCall
from functions.protocol.frames import NO_HEADER
from functions.protocol.v2 import Codec
from functions.protocol.values import Response
from functions.tensors import DTYPES
from tests.functions.protocol.models import IDF, LAB, OPT, TEXT, TYPES, binary_body, fp32

CODECS = [Codec(config, 1, limit_bytes=1 << 20) for config in (IDF, OPT, TYPES, TEXT, LAB)]
FLAGS = st.integers(0, 31)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=4), max_leaves=8
)
SCALARS = st.sampled_from([None, True, -1, 0, 1, 2**31, 2**63, 2**64, 1.5, float("nan"), float("inf"), "", "x", "\ud800", [], {}, [[1]]])
VALID = [
    binary_body(bytes(16), id="a", inputs=[fp32(parameters={"binary_data_size": 16})], outputs=[{"name": "OUTPUT0"}]),
    binary_body(b"\x01\0\0\0a", inputs=[{"name": "I", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}]),
    binary_body(b"", parameters={"timeout": 1}, inputs=[fp32(data=[1, 2, 3, 4])]),
]


def survive(codec: Codec, body: bytes, header_length: int, flags: int) -> None:
    try:
        decoded = codec.decode(memoryview(body), header_length, flags)
    except CallerError:
        return
    assert isinstance(decoded, DecodedCall)
    arrays = dict(zip(decoded.request.outputs, decoded.request.inputs.values(), strict=False))
    datatypes = dict(zip(decoded.request.outputs, decoded.request.dtypes.values(), strict=False))
    try:
        codec.encode(decoded, Response(arrays, datatypes))
    except CallerError:
        return


@settings(deadline=None)
@given(st.sampled_from(CODECS), st.binary(max_size=200), st.integers(0, 220) | st.just(NO_HEADER), FLAGS)
def test_random_bytes(codec: Codec, body: bytes, header_length: int, flags: int) -> None:
    survive(codec, body, header_length, flags)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CODECS), st.sampled_from(VALID), st.data())
def test_valid_requests_with_bytes_changed(codec: Codec, valid: tuple[memoryview, int], data: st.DataObject) -> None:
    body, length = bytearray(valid[0]), valid[1]
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(("set", "drop", "insert"))):
            case "set":
                body[place] = data.draw(st.integers(0, 255))
            case "drop" if len(body) > 1:
                del body[place]
            case _:
                body[place:place] = data.draw(st.binary(max_size=4))
    survive(codec, bytes(body), data.draw(st.sampled_from((length, NO_HEADER, 0, length + 1))), 0)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(CODECS),
    st.fixed_dictionaries(
        {},
        optional={
            "id": SCALARS,
            "parameters": st.dictionaries(st.sampled_from(("priority", "timeout", "sequence_id", "sequence_end", "k", "triton_k")), SCALARS)
            | SCALARS,
            "outputs": st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "name": st.sampled_from(("OUTPUT0", "O", "O_FP16")) | SCALARS,
                        "parameters": st.dictionaries(st.sampled_from(("classification", "binary_data", "shared_memory_region")), SCALARS),
                    },
                ),
                max_size=3,
            ),
            "inputs": st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "name": st.sampled_from(("INPUT0", "A", "B", "I", *(f"I_{name}" for name in DTYPES))) | SCALARS,
                        "datatype": st.sampled_from(list(DTYPES)) | SCALARS,
                        "shape": st.lists(st.integers(-1, 4) | SCALARS, max_size=3) | SCALARS,
                        "data": JSON,
                        "parameters": st.dictionaries(st.sampled_from(("binary_data_size", "shared_memory_region")), SCALARS) | SCALARS,
                    },
                ),
                max_size=3,
            ),
        },
    ),
    st.binary(max_size=16),
)
def test_json_of_any_shape(codec: Codec, members: dict[str, Any], binary: bytes) -> None:
    header = json.dumps(members).encode()
    survive(codec, header + binary, len(header), 0)
