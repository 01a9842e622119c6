"""Whole calls through the codec: what is decoded, and the bytes of the answer."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest

from functions.errors import InvalidRequest, ModelFailed, ModelNotFound, TooLarge
from functions.protocol.calls import DecodedCall, Encoded
from functions.protocol.frames import NO_HEADER, Flag
from functions.protocol.v2 import Codec
from functions.protocol.values import Response
from functions.tensors import DTYPES
from tests.functions.protocol.models import IDF, LAB, OPT, TEXT, TYPES, binary_body, fp32, json_body

ROW = np.array([[1, 2, 3, 4]], dtype=np.float32)
BINARY = {"binary_data_size": 16}


def body_of(encoded: Encoded) -> dict[str, Any]:
    whole = b"".join(encoded.parts)
    return json.loads(whole if encoded.header_length == NO_HEADER else whole[: encoded.header_length])


def call(codec: Codec, **members: Any) -> DecodedCall:
    return codec.decode(json_body(**members))


def test_a_json_call_answers_in_tritons_key_order() -> None:
    codec = Codec(IDF, 1)
    decoded = call(codec, inputs=[fp32(data=[1, 2, 3, 4])])
    encoded = codec.encode(decoded, Response({"OUTPUT0": decoded.request.inputs["INPUT0"]}, {"OUTPUT0": "FP32"}))

    expected = (
        '{"model_name":"idf","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[1,4],"data":[1.0,2.0,3.0,4.0]}]}'
    )
    assert (expected.encode(), NO_HEADER, 0) == (b"".join(encoded.parts), encoded.header_length, encoded.flags)


def test_a_binary_call_answers_in_binary_where_it_asks_for_it() -> None:
    codec = Codec(IDF, 3)
    body, length = binary_body(
        ROW.tobytes(), id="r1", inputs=[fp32(parameters=BINARY)], outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}]
    )
    decoded = codec.decode(body, length)
    encoded = codec.encode(decoded, Response({"OUTPUT0": decoded.request.inputs["INPUT0"]}, {"OUTPUT0": "FP32"}))

    whole = b"".join(encoded.parts)
    expected = (
        b'{"id":"r1","model_name":"idf","model_version":"3","outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[1,4],'
        b'"parameters":{"binary_data_size":16}}]}'
    )
    assert expected == whole[: encoded.header_length]
    assert ROW.tobytes() == whole[encoded.header_length :]
    assert int(Flag.BINARY) == encoded.flags
    assert len(whole) == encoded.size_bytes


def test_a_decoded_call_says_everything_the_caller_said() -> None:
    decoded = call(
        Codec(IDF, 1),
        id="x",
        parameters={"sequence_id": 7, "sequence_start": True, "priority": 2, "timeout": 5000, "t": 0.5, "k": "v", "headers": {}},
        inputs=[fp32(data=[[1, 2], [3, 4]])],
    )

    request = decoded.request
    assert ("x", 7, 1, 2, 5000) == (request.id, request.correlation_id, request.flags, request.priority, request.timeout_us)
    assert {"t": 0.5, "k": "v"} == request.parameters
    assert {"INPUT0": "FP32"} == request.dtypes
    assert ("OUTPUT0",) == request.outputs
    np.testing.assert_array_equal(ROW, request.inputs["INPUT0"])


@pytest.mark.parametrize("name", [name for name in DTYPES if name not in ("FP16", "BF16", "BYTES")])
def test_every_type_goes_through_json(name: str) -> None:
    codec = Codec(TYPES, 1)
    data = [True, False, True] if name == "BOOL" else [1, 0, 2]
    decoded = call(codec, inputs=[{"name": f"I_{name}", "datatype": name, "shape": [3], "data": data}], outputs=[{"name": f"O_{name}"}])
    encoded = codec.encode(decoded, Response({f"O_{name}": decoded.request.inputs[f"I_{name}"]}, {f"O_{name}": name}))

    assert data == body_of(encoded)["outputs"][0]["data"]


@pytest.mark.parametrize("name", list(DTYPES))
@pytest.mark.parametrize("writable", [True, False])
def test_every_type_goes_through_binary_into_arrays_a_model_may_write_to(name: str, writable: bool) -> None:
    codec = Codec(TYPES, 1)
    binary = b"\x02\x00\x00\x00ab\x00\x00\x00\x00\x01\x00\x00\x00c" if name == "BYTES" else bytes(range(1, 1 + 3 * DTYPES[name].itemsize))
    binary = b"\x01\x00\x01" if name == "BOOL" else binary
    body, length = binary_body(
        binary,
        inputs=[{"name": f"I_{name}", "datatype": name, "shape": [3], "parameters": {"binary_data_size": len(binary)}}],
        outputs=[{"name": f"O_{name}", "parameters": {"binary_data": True}}],
    )
    decoded = codec.decode(memoryview(bytearray(body)) if writable else body, length)
    array = decoded.request.inputs[f"I_{name}"]
    encoded = codec.encode(decoded, Response({f"O_{name}": array}, {f"O_{name}": name}))

    assert binary == encoded.parts[1]
    assert array.flags.writeable
    assert array.flags.aligned
    assert DTYPES[name].numpy == array.dtype


def test_any_non_zero_byte_of_a_bool_is_true() -> None:
    body, length = binary_body(
        b"\x02\x00\xff",
        inputs=[{"name": "I_BOOL", "datatype": "BOOL", "shape": [3], "parameters": {"binary_data_size": 3}}],
        outputs=[{"name": "O_BOOL"}],
    )
    decoded = Codec(TYPES, 1).decode(body, length)

    assert [True, False, True] == decoded.request.inputs["I_BOOL"].tolist()
    assert b"\x01\x00\x01" == decoded.request.inputs["I_BOOL"].tobytes()


def test_inputs_may_come_both_ways_in_one_call() -> None:
    body, length = binary_body(
        b"\x07\x00\x00\x00",
        inputs=[
            {"name": "A", "datatype": "INT32", "shape": [1, 1], "data": [5]},
            {"name": "B", "datatype": "INT32", "shape": [1, 1], "parameters": {"binary_data_size": 4}},
        ],
    )
    inputs = Codec(OPT, 1).decode(body, length).request.inputs

    assert {"A": [[5]], "B": [[7]]} == {name: array.tolist() for name, array in inputs.items()}


def test_binary_data_output_is_the_form_of_outputs_that_do_not_say_their_own() -> None:
    codec = Codec(OPT, 1)
    decoded = call(
        codec,
        parameters={"binary_data_output": True},
        inputs=[{"name": "A", "datatype": "INT32", "shape": [1, 1], "data": [5]}],
        outputs=[{"name": "O"}, {"name": "P", "parameters": {"binary_data": False}}],
    )
    answer = np.array([[1]], dtype=np.int32)
    encoded = codec.encode(decoded, Response({"O": answer, "P": answer}, {"O": "INT32", "P": "INT32"}))
    first, second = body_of(encoded)["outputs"]

    assert {"binary_data_size": 4} == first["parameters"]
    assert [1] == second["data"]


def test_only_requested_outputs_come_back_in_the_models_order() -> None:
    codec = Codec(LAB, 1)
    decoded = call(codec, inputs=[fp32(data=[1, 2, 3, 4])], outputs=[{"name": "OUT2"}, {"name": "OUTPUT0"}, {"name": "OUT2"}])
    ints = np.zeros((1, 4), np.int32)
    response = Response({"OUTPUT0": ROW, "OUT1": ints, "OUT2": ints, "EXTRA": ints}, {"OUTPUT0": "FP32", "OUT2": "INT32"})

    assert ("OUT2", "OUTPUT0") == decoded.request.outputs
    assert ["OUTPUT0", "OUT2"] == [output["name"] for output in body_of(codec.encode(decoded, response))["outputs"]]


def test_outputs_without_a_byte_leave_the_answer_json() -> None:
    codec = Codec(TEXT, 1)
    decoded = call(codec, inputs=[{"name": "I", "datatype": "BYTES", "shape": [0], "data": []}], parameters={"binary_data_output": True})
    encoded = codec.encode(decoded, Response({"O": decoded.request.inputs["I"]}, {"O": "BYTES"}))

    assert (NO_HEADER, 0) == (encoded.header_length, encoded.flags)
    assert {"binary_data_size": 0} == body_of(encoded)["outputs"][0]["parameters"]


def test_response_parameters_stand_before_the_outputs() -> None:
    codec = Codec(IDF, 1)
    decoded = call(codec, inputs=[fp32(data=[1, 2, 3, 4])])

    assert ["model_name", "model_version", "parameters", "outputs"] == list(body_of(codec.encode(decoded, Response(parameters={"a": 1}))))


def test_the_parts_of_an_answer_do_not_change_when_the_model_writes_over_its_output() -> None:
    codec = Codec(IDF, 1)
    decoded = call(codec, inputs=[fp32(data=[1, 2, 3, 4])], parameters={"binary_data_output": True})
    output = ROW.copy()
    encoded = codec.encode(decoded, Response({"OUTPUT0": output}, {"OUTPUT0": "FP32"}))
    output[:] = 9

    assert ROW.tobytes() == encoded.parts[1]


def test_a_strided_output_is_sent_in_row_major_order() -> None:
    codec = Codec(IDF, 1)
    decoded = call(codec, inputs=[fp32(data=[1, 2, 3, 4])], parameters={"binary_data_output": True})
    encoded = codec.encode(decoded, Response({"OUTPUT0": ROW[:, ::-1]}, {"OUTPUT0": "FP32"}))

    assert np.array([4, 3, 2, 1], np.float32).tobytes() == encoded.parts[1]


def test_the_error_of_a_response_is_raised() -> None:
    codec = Codec(IDF, 1)
    decoded = call(codec, inputs=[fp32(data=[1, 2, 3, 4])])

    with pytest.raises(ModelNotFound, match="no such thing"):
        codec.encode(decoded, Response(error=ModelNotFound("no such thing")))


def test_bytes_that_are_not_utf8_have_no_json_form_and_the_error_says_what_to_do() -> None:
    codec = Codec(TEXT, 1)
    decoded = call(codec, inputs=[{"name": "I", "datatype": "BYTES", "shape": [1], "data": ["é"]}])

    assert "é".encode() == decoded.request.inputs["I"][0]
    with pytest.raises(InvalidRequest, match=r"output 'O' holds bytes that are not UTF-8 .* ask for it with \"binary_data\": true"):
        codec.encode(decoded, Response({"O": np.array([b"\xff"], object)}, {"O": "BYTES"}))


def test_a_string_without_a_utf8_form_is_the_models_fault() -> None:
    codec = Codec(TEXT, 1)
    decoded = call(codec, inputs=[{"name": "I", "datatype": "BYTES", "shape": [0], "data": []}], parameters={"binary_data_output": True})

    with pytest.raises(ModelFailed, match="output 'O' holds a string without a UTF-8 form"):
        codec.encode(decoded, Response({"O": np.array(["\ud800"], object)}, {"O": "BYTES"}))


def test_classification_answers_values_indices_and_labels() -> None:
    codec = Codec(LAB, 1, {"OUTPUT0": ("cat", "dog", "", "owl")})
    decoded = call(codec, inputs=[fp32(data=[1, 2, 3, 4])], outputs=[{"name": "OUTPUT0", "parameters": {"classification": 3}}])
    output = body_of(codec.encode(decoded, Response({"OUTPUT0": ROW}, {"OUTPUT0": "FP32"})))["outputs"][0]

    expected = {
        "name": "OUTPUT0",
        "datatype": "BYTES",
        "shape": [1, 3],
        "data": ["4.000000:3:owl", "3.000000:2", "2.000000:1:dog"],
    }
    assert expected == output


@pytest.mark.parametrize(("flag", "pack"), [(Flag.GZIP, gzip.compress), (Flag.DEFLATE, zlib.compress)])
def test_a_compressed_binary_request_keeps_its_uncompressed_header_length(flag: Flag, pack: Any) -> None:
    body, length = binary_body(ROW.tobytes(), inputs=[fp32(parameters=BINARY)])
    decoded = Codec(IDF, 1).decode(memoryview(pack(bytes(body))), length, flag)

    np.testing.assert_array_equal(ROW, decoded.request.inputs["INPUT0"])


@pytest.mark.parametrize(
    ("accept", "flag", "unpack"),
    [
        (Flag.ACCEPT_GZIP, Flag.GZIP, gzip.decompress),
        (Flag.ACCEPT_DEFLATE, Flag.DEFLATE, zlib.decompress),
        (Flag.ACCEPT_GZIP | Flag.ACCEPT_DEFLATE, Flag.GZIP, gzip.decompress),
    ],
)
def test_an_answer_is_compressed_as_the_caller_accepts(accept: Flag, flag: Flag, unpack: Any) -> None:
    codec = Codec(IDF, 1)
    body, length = binary_body(ROW.tobytes(), inputs=[fp32(parameters=BINARY)], parameters={"binary_data_output": True})
    encoded = codec.encode(codec.decode(body, length, accept), Response({"OUTPUT0": ROW}, {"OUTPUT0": "FP32"}))

    assert int(flag | Flag.BINARY) == encoded.flags
    assert ROW.tobytes() == unpack(b"".join(encoded.parts))[encoded.header_length :]


def test_a_compressed_body_over_the_limit_is_too_large() -> None:
    with pytest.raises(TooLarge, match="maximum allowed value of 100 bytes"):
        Codec(IDF, 1, limit_bytes=100).decode(memoryview(gzip.compress(b" " * 101)), NO_HEADER, Flag.GZIP)


@pytest.mark.parametrize("ids", [("a", "b", "a"), ("a", "", "b"), ("", "a", ""), ("é", "a", "é")])
def test_a_recognised_header_keeps_the_id_of_each_call(ids: tuple[str, ...]) -> None:
    codec = Codec(IDF, 1)
    seen = []
    for id in ids:
        header = json.dumps(
            {"id": id, "inputs": [fp32(parameters=BINARY)]} if id else {"inputs": [fp32(parameters=BINARY)]}, ensure_ascii=False
        )
        seen.append(codec.decode(memoryview(header.encode() + ROW.tobytes()), len(header.encode())).request.id)

    assert list(ids) == seen


@pytest.mark.parametrize("later", ['"id":"z"', '"\\u0069d":"z"'])
def test_a_second_id_wins_as_it_does_for_every_json_parser(later: str) -> None:
    codec = Codec(IDF, 1)
    head = json.dumps([fp32(parameters=BINARY)])
    for first in ("a", "b"):
        text = f'{{"id":"{first}","inputs":{head},{later}}}'.encode()

        assert "z" == codec.decode(memoryview(text + ROW.tobytes()), len(text)).request.id


def test_calls_with_a_recognised_header_share_no_state() -> None:
    codec = Codec(IDF, 1)
    body, length = binary_body(ROW.tobytes(), parameters={"k": 1}, inputs=[fp32(parameters=BINARY)])
    first = codec.decode(body, length).request
    first.parameters["k"], first.dtypes["INPUT0"] = 2, "other"
    first.inputs["INPUT0"][:] = 0
    second = codec.decode(body, length).request

    assert ({"k": 1}, {"INPUT0": "FP32"}) == (second.parameters, second.dtypes)
    np.testing.assert_array_equal(ROW, second.inputs["INPUT0"])


def test_a_recognised_header_still_has_its_body_measured() -> None:
    codec = Codec(IDF, 1)
    body, length = binary_body(ROW.tobytes(), inputs=[fp32(parameters=BINARY)])
    codec.decode(body, length)

    with pytest.raises(InvalidRequest, match="unexpected size for input 'INPUT0', expecting 1 additional bytes for model 'idf'"):
        codec.decode(body[:-1], length)
    with pytest.raises(InvalidRequest, match="unexpected additional input data for model 'idf'"):
        codec.decode(memoryview(bytes(body) + b"x"), length)
