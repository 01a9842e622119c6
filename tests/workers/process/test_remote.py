"""The bodies of outcalls, read back by the codec that answers them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from functions.config.spec import ModelConfig
from functions.errors import ProtocolError
from functions.protocol.frames import NO_HEADER
from functions.protocol.v2 import Codec
from functions.protocol.values import Request, Response
from tests.workers.process.bundles import config
from workers.process.remote import request_body, response

CODEC = Codec(
    ModelConfig.of(
        config(
            "m",
            inputs={"A": ("TYPE_FP32", [2]), "S": ("TYPE_STRING", [-1])},
            outputs={"Y": ("TYPE_FP32", [2]), "T": ("TYPE_STRING", [-1])},
        )
    ),
    1,
)


def test_a_request_arrives_as_it_was_sent() -> None:
    strings = np.array([b"one", b""], dtype=object)
    sent = Request({"A": np.ones(2, np.float32), "S": strings}, ("T",), "q1", {"k": 3}, correlation_id=5, flags=1, timeout_us=9, priority=2)

    parts, header_length = request_body(sent)
    call = CODEC.decode(memoryview(b"".join(parts)), header_length)

    got = call.request
    assert ([1, 1], [b"one", b""]) == (got.inputs["A"].tolist(), got.inputs["S"].tolist())
    assert ("q1", ("T",), {"k": 3}, 5, 1, 9, 2) == (
        got.id,
        got.outputs,
        got.parameters,
        got.correlation_id,
        got.flags,
        got.timeout_us,
        got.priority,
    )


def test_an_answer_arrives_as_it_was_given() -> None:
    parts, header_length = request_body(Request({"A": np.ones(2, np.float32), "S": np.array([b""], dtype=object)}, ()))
    call = CODEC.decode(memoryview(b"".join(parts)), header_length)
    given = Response({"Y": np.array([1.5, 2], np.float32), "T": np.array([b"x"], dtype=object)}, {"Y": "FP32", "T": "BYTES"})
    encoded = CODEC.encode(call, given)

    got = response(encoded.header_length, memoryview(b"".join(encoded.parts)))

    assert ([1.5, 2], [b"x"]) == (got.outputs["Y"].tolist(), got.outputs["T"].tolist())
    assert given.dtypes == got.dtypes


def test_an_answer_may_hold_lists() -> None:
    body = {
        "outputs": [
            {"name": "Y", "datatype": "INT8", "shape": [2], "data": [1, -1]},
            {"name": "T", "datatype": "BYTES", "shape": [1], "data": ["é"]},
        ]
    }

    got = response(NO_HEADER, memoryview(json.dumps(body).encode()))

    assert ([1, -1], ["é".encode()]) == (got.outputs["Y"].tolist(), got.outputs["T"].tolist())


@pytest.mark.parametrize(
    "body",
    [
        b"nothing",
        b"{}",
        b"[]",
        b'{"outputs":[{"name":"Y"}]}',
        b'{"outputs":[{"name":"Y","datatype":"FP99","shape":[1],"data":[1]}]}',
        b'{"outputs":[{"name":"Y","datatype":"FP32","shape":[3],"data":[1]}]}',
        b'{"outputs":[{"name":"Y","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}',
        b'{"outputs":[{"name":"Y","datatype":"FP32","shape":[-1],"parameters":{"binary_data_size":-4}}]}',
        b'{"outputs":[{"name":"Y","datatype":"BYTES","shape":[1],"data":[1]}]}',
    ],
)
def test_what_is_no_answer_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        response(NO_HEADER, memoryview(body))
