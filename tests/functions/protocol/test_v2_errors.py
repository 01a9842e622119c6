"""Triton's catalogue of request faults: the same texts, but each is the caller's fault and none is the server's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.config.spec import ModelConfig
from functions.errors import InvalidRequest, TooLarge, Unsupported
from functions.protocol.frames import NO_HEADER
from functions.protocol.v2 import Codec
from functions.protocol.v2_request import MAX_JSON
from tests.functions.protocol.models import FIXED, IDF, LAB, OPT, TEXT, TYPES, binary_body, fp32, json_body

GOOD = fp32(data=[1, 2, 3, 4])
NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you "
    "want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. See the model "
    "configuration docs for more info on max_batch_size."
)
SOURCES = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. "
)
MEMBER = "attempt to access non-existing object member"


def int32(name: str, shape: list[int], data: Any = (1,)) -> dict[str, Any]:
    return {"name": name, "datatype": "INT32", "shape": shape, "data": list(data)}


def text_of(config: ModelConfig, body: memoryview, length: int = NO_HEADER) -> str:
    with pytest.raises(InvalidRequest) as caught:
        Codec(config, 1).decode(body, length)
    return caught.value.message


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "failed to parse the request JSON buffer: "),
        (b"xyz", "failed to parse the request JSON buffer: "),
        (b'{"inputs":[]} more', "failed to parse the request JSON buffer: Extra data. at 14"),
        (b'{"id":"\xff"}', "failed to parse the request JSON buffer: invalid start byte. at 7"),
        (b"[" * 100_000, "failed to parse the request JSON buffer: nested too deeply."),
        (b'{"inputs":' + b"9" * 5000 + b"}", "failed to parse the request JSON buffer: Exceeds the limit"),
        (b"{}", f"Unable to parse 'inputs': {MEMBER} 'inputs'"),
        (b"[]", f"Unable to parse 'inputs': {MEMBER} 'inputs'"),
        (b'"s"', f"Unable to parse 'inputs': {MEMBER} 'inputs'"),
        (b'{"inputs":1}', "Unable to parse 'inputs': attempt to access JSON non-array as array"),
        (b'{"inputs":[1]}', f"Unable to parse 'name': {MEMBER} 'name'"),
    ],
)
def test_json_that_is_none_or_has_no_inputs_is_refused(body: bytes, text: str) -> None:
    assert text_of(IDF, memoryview(body)).startswith(text)


@pytest.mark.parametrize(
    ("config", "members", "text"),
    [
        (
            IDF,
            {"inputs": []},
            "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'idf'. Got input(s) [], but missing required input(s) "
            "['INPUT0']. Please provide all required input(s).",
        ),
        (
            IDF,
            {"id": "r7", "inputs": [GOOD, fp32("B", data=[1, 2, 3, 4])]},
            "[request id: r7] expected 1 inputs but got 2 inputs for model 'idf'. Got input(s) ['INPUT0','B'], but missing required "
            "input(s) []. Please provide all required input(s).",
        ),
        (
            OPT,
            {"inputs": []},
            "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 0 inputs for model 'opt'. Got input(s) [], but "
            "missing required input(s) ['A']. Please provide all required input(s).",
        ),
        (
            OPT,
            {"inputs": [int32("B", [1, 1])]},
            "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 1 inputs for model 'opt'. Got input(s) ['B'], "
            "but missing required input(s) ['A']. Please provide all required input(s).",
        ),
        (IDF, {"inputs": [{"shape": [1], "datatype": "FP32"}]}, f"Unable to parse 'name': {MEMBER} 'name'"),
        (IDF, {"inputs": [{"name": "INPUT0", "datatype": "FP32"}]}, f"Unable to parse 'shape': {MEMBER} 'shape'"),
        (IDF, {"inputs": [{"name": "INPUT0", "shape": [1]}]}, f"Unable to parse 'datatype': {MEMBER} 'datatype'"),
        (IDF, {"inputs": [fp32()]}, f"{SOURCES}But no field is set"),
        (IDF, {"inputs": [{**GOOD, "parameters": {"binary_data_size": 16}}]}, f"{SOURCES}But set 'data' 'binary_data_size'"),
        (
            IDF,
            {"inputs": [{**GOOD, "shape": [1, -1]}]},
            "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            IDF,
            {"inputs": [{**GOOD, "shape": [1.5]}]},
            "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            IDF,
            {"inputs": [{**GOOD, "shape": [True]}]},
            "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (IDF, {"inputs": [{**GOOD, "shape": [1] * 33}]}, "Unable to parse 'shape': 33 dimensions; a tensor has at most 32"),
        (
            IDF,
            {"inputs": [{**GOOD, "shape": [0, 2**62, 2**62]}]},
            "Unable to parse 'shape': [0, 4611686018427387904, 4611686018427387904] has more elements than any tensor can hold",
        ),
        (IDF, {"inputs": [fp32(data=[1, 2, 3])]}, "Unable to parse 'data': Shape does not match true shape of 'data' field"),
        (IDF, {"inputs": [GOOD, GOOD]}, "input 'INPUT0' already exists in request"),
        (IDF, {"inputs": [fp32("WRONG", data=[1, 2, 3, 4])]}, "unexpected inference input 'WRONG' for model 'idf'"),
        (IDF, {"inputs": [{**GOOD, "datatype": "FLOAT"}]}, "invalid datatype for input INPUT0"),
        (IDF, {"inputs": [{**GOOD, "datatype": "fp32"}]}, "invalid datatype for input INPUT0"),
        (
            IDF,
            {"inputs": [{**GOOD, "datatype": "INT32"}]},
            "[request id: <id_unknown>] inference input 'INPUT0' data-type is 'INT32', but model 'idf' expects 'FP32'",
        ),
        (
            IDF,
            {"inputs": [{**GOOD, "shape": [4]}]},
            f"[request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'idf'. Expected [-1,4], got [4]. {NOTE}",
        ),
        (
            FIXED,
            {"inputs": [fp32(shape=(1, 1), data=[1])]},
            "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'fixed'. Expected [4], got [1,1]. ",
        ),
        (
            IDF,
            {"inputs": [fp32(shape=(), data=[1])]},
            "[request id: <id_unknown>] input 'INPUT0' has no shape but model requires batch dimension for 'idf'",
        ),
        (
            IDF,
            {"inputs": [fp32(shape=(9, 4), data=[0] * 36)]},
            "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'idf'",
        ),
        (
            IDF,
            {"inputs": [fp32(shape=(0, 4), data=[])]},
            "[request id: <id_unknown>] input byte size mismatch for input 'INPUT0' for model 'idf'. Expected 16, got 0",
        ),
        (
            OPT,
            {"inputs": [int32("A", [1, 1]), int32("B", [2, 1], (1, 2))]},
            "[request id: <id_unknown>] input 'B' batch size does not match other inputs for 'opt'",
        ),
        (IDF, {"inputs": [GOOD], "outputs": [{"name": "NOPE"}]}, "unexpected inference output 'NOPE' for model 'idf'"),
        (IDF, {"inputs": [GOOD], "outputs": [{}]}, f"Unable to parse 'name': {MEMBER} 'name'"),
        (IDF, {"inputs": [GOOD], "outputs": {}}, "Unable to parse 'outputs': attempt to access JSON non-array as array"),
        (
            LAB,
            {"inputs": [GOOD], "outputs": [{"name": "OUTPUT0", "parameters": {"classification": -1}}]},
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            IDF,
            {"inputs": [GOOD], "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": 1}}]},
            "Unable to parse 'binary_data': attempt to access JSON non-boolean as boolean",
        ),
        (
            IDF,
            {"inputs": [GOOD], "outputs": [{"name": "OUTPUT0", "parameters": {"shared_memory_region": "r", "classification": 1}}]},
            "Output can't set both 'shared_memory_region' and 'classification'",
        ),
        (
            IDF,
            {"inputs": [GOOD], "outputs": [{"name": "OUTPUT0", "parameters": {"shared_memory_region": "r", "binary_data": True}}]},
            "Output can't set both 'shared_memory_region' and 'binary_data'",
        ),
        (
            TYPES,
            {"inputs": [], "outputs": [{"name": "O_FP16"}]},
            "sending FP16 data via JSON is not supported. Please use the binary data format for output",
        ),
        (
            TYPES,
            {"inputs": [{"name": "I_BF16", "datatype": "BF16", "shape": [1], "data": [1]}]},
            "receiving BF16 data via JSON is not supported. Please use the binary data format for input I_BF16",
        ),
        (IDF, {"id": 5, "inputs": [GOOD]}, "Unable to parse 'id': attempt to access JSON non-string as string"),
        (
            IDF,
            {"parameters": {"timeout": -1}, "inputs": [GOOD]},
            "Unable to parse 'timeout': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            IDF,
            {"parameters": {"sequence_id": 1.5}, "inputs": [GOOD]},
            "Unable to parse 'sequence_id': attempt to access JSON non-string as string",
        ),
        (
            IDF,
            {"parameters": {"sequence_start": 1}, "inputs": [GOOD]},
            "Unable to parse 'sequence_start': attempt to access JSON non-boolean as boolean",
        ),
        (
            IDF,
            {"parameters": {"triton_x": 1}, "inputs": [GOOD]},
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
        ),
        (
            IDF,
            {"parameters": {"foo": None}, "inputs": [GOOD]},
            "parameter 'foo' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (IDF, {"parameters": 5, "inputs": [GOOD]}, "failed to get request params.: attempt to get members for non-object"),
    ],
)
def test_a_fault_in_the_json_part_is_told_in_tritons_words(config: ModelConfig, members: dict[str, Any], text: str) -> None:
    assert text == text_of(config, json_body(**members))


@pytest.mark.parametrize(
    ("binary", "size", "text"),
    [
        (bytes(8), 16, "unexpected size for input 'INPUT0', expecting 8 additional bytes for model 'idf'"),
        (bytes(17), 16, "unexpected additional input data for model 'idf'"),
        (bytes(12), 12, "[request id: q] input byte size mismatch for input 'INPUT0' for model 'idf'. Expected 16, got 12"),
        (b"", -1, "Unable to parse 'binary_data_size': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    ],
)
def test_a_binary_part_of_another_size_is_refused(binary: bytes, size: int, text: str) -> None:
    body, length = binary_body(binary, id="q", inputs=[fp32(parameters={"binary_data_size": size})])

    assert text == text_of(IDF, body, length)


def test_the_first_input_that_lacks_bytes_is_named() -> None:
    heads = [{"name": name, "datatype": "INT32", "shape": [1, 1], "parameters": {"binary_data_size": 4}} for name in ("A", "B")]
    body, length = binary_body(bytes(5), inputs=heads)

    assert "unexpected size for input 'B', expecting 3 additional bytes for model 'opt'" == text_of(OPT, body, length)


@pytest.mark.parametrize(
    ("binary", "shape", "text"),
    [
        (b"\x01\0\0\0a", [2], "expected 2 string elements for inference input 'I' for model 'm', got 1"),
        (
            b"\x01\0\0\0a\x01\0\0\0b",
            [1],
            "unexpected number of string elements 2 for inference input 'I' for model 'm', expecting 1",
        ),
        (
            b"\x05\0\0\0ab",
            [1],
            "incomplete string data for inference input 'I' for model 'm', expecting string of length 5 but only 2 bytes available",
        ),
        (
            b"\x00\0\0\0ab",
            [2],
            "incomplete string length indicator for inference input 'I' for model 'm', expecting 4 bytes but only 2 bytes available",
        ),
    ],
)
def test_strings_that_do_not_add_up_are_told_apart(binary: bytes, shape: list[int], text: str) -> None:
    head = {"name": "I", "datatype": "BYTES", "shape": shape, "parameters": {"binary_data_size": len(binary)}}
    body, length = binary_body(binary, inputs=[head])

    assert f"[request id: <id_unknown>] {text}" == text_of(TEXT, body, length)


def test_a_header_longer_than_the_body_is_refused() -> None:
    assert "inference header size should be in range (0, 10), got: 99999" == text_of(IDF, memoryview(bytes(10)), 99999)


def test_a_json_part_over_its_own_limit_is_too_large() -> None:
    with pytest.raises(TooLarge, match=f"the limit is {MAX_JSON}"):
        Codec(IDF, 1).decode(memoryview(bytes(MAX_JSON + 1)), MAX_JSON + 1)


@pytest.mark.parametrize(
    "members",
    [
        {"inputs": [fp32(parameters={"shared_memory_region": "r"})]},
        {"inputs": [GOOD], "outputs": [{"name": "OUTPUT0", "parameters": {"shared_memory_region": "r"}}]},
    ],
)
def test_shared_memory_is_refused_by_name(members: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="shared memory is not offered"):
        Codec(IDF, 1).decode(json_body(**members))


def test_unknown_keys_are_ignored_at_every_level() -> None:
    members = {"x": 1, "inputs": [{**GOOD, "y": 2, "parameters": {"z": 3}}], "outputs": [{"name": "OUTPUT0", "parameters": {"w": []}}]}

    assert ("OUTPUT0",) == Codec(IDF, 1).decode(memoryview(json.dumps(members).encode())).request.outputs
