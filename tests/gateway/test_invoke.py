from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.errors import InvalidRequest
from gateway import invoke

METADATA = {
    "name": "f",
    "inputs": [
        {"name": "X", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "N", "datatype": "INT8", "shape": [-1, 1]},
        {"name": "S", "datatype": "BYTES", "shape": [1]},
    ],
}
PICTURE = {"name": "p", "inputs": [{"name": "IMAGE", "datatype": "BYTES", "shape": [-1, 1]}]}


@pytest.mark.parametrize(
    ("values", "shapes"),
    [
        ({"X": [[1, 2], [3.5, 4]]}, [(2, 2)]),
        ({"X": [1, 2]}, [(1, 2)]),
        ({"N": 5, "S": "text"}, [(1, 1), (1,)]),
        ({"S": ["text"]}, [(1,)]),
    ],
)
def test_values_take_the_declared_shape(values: dict[str, Any], shapes: list[tuple[int, ...]]) -> None:
    assert shapes == [tensor.array.shape for tensor in invoke.from_values(METADATA, values)]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"Y": 1}, "no input 'Y'"),
        ({"X": [[1, 2, 3]]}, "does not fit"),
        ({"X": [[1, 2], [3]]}, "differ in length"),
        ({"X": [["a", "b"]]}, "FP32"),
        ({"N": [[1.5]]}, "INT8"),
        ({"N": [[True]]}, "INT8"),
        ({"N": [[300]]}, "-128 to 127"),
        ({"S": [1]}, "strings"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_before_it_is_sent(values: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        invoke.from_values(METADATA, values)


def test_a_v2_request_is_checked_like_typed_values_and_may_be_flat() -> None:
    request = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]}

    assert [[1.0, 2.0], [3.0, 4.0]] == invoke.from_request(METADATA, request)[0].array.tolist()

    for broken, says in (({"shape": [3, 2]}, "do not make"), ({"datatype": "FP64"}, "not FP64"), ({"name": "Q"}, "no input 'Q'")):
        with pytest.raises(InvalidRequest, match=says):
            invoke.from_request(METADATA, {"inputs": [{**request["inputs"][0], **broken}]})


def test_a_picture_goes_as_one_string_of_bytes() -> None:
    (tensor,) = invoke.from_image(PICTURE, b"\x89PNG")

    assert ("IMAGE", (1, 1), b"\x04\x00\x00\x00\x89PNG") == (tensor.name, tensor.array.shape, tensor.data())

    with pytest.raises(InvalidRequest, match="does not take one encoded picture"):
        invoke.from_image(METADATA, b"")


def test_typed_values_are_json_or_a_file_of_json_or_a_string(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text("[[1, 2]]")

    assert ("X", [[1, 2]]) == invoke.typed("X=[[1, 2]]")
    assert ("X", [[1, 2]]) == invoke.typed(f"X=@{tmp_path}/v.json")
    assert ("S", "a=b c") == invoke.typed("S=a=b c")

    for broken in ("X", "=1", "X=@/does/not/exist"):
        with pytest.raises(InvalidRequest):
            invoke.typed(broken)


def test_the_body_is_a_json_header_and_the_raw_tensors() -> None:
    body, length = invoke.encode(invoke.from_values(METADATA, {"X": [[1, 2]], "S": "ab"}), METADATA)
    header = json.loads(body[:length])

    assert [8, 6] == [entry["parameters"]["binary_data_size"] for entry in header["inputs"]]
    assert np.array([[1, 2]], "<f4").tobytes() + b"\x02\x00\x00\x00ab" == body[length:]


def test_nothing_given_is_refused_with_what_the_function_takes() -> None:
    with pytest.raises(InvalidRequest, match=r"X FP32\[-1, 2\]"):
        invoke.encode([], METADATA)


def test_an_answer_becomes_plain_values() -> None:
    outputs = [
        {"name": "Y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
        {"name": "T", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 11}},
        {"name": "J", "datatype": "INT32", "shape": [1], "data": [7]},
    ]
    header = json.dumps({"model_name": "f", "outputs": outputs}).encode()
    raw = np.array([1, 2], "<f4").tobytes() + b"\x02\x00\x00\x00ab\x01\x00\x00\x00\xff"
    answer = invoke.decode(header + raw, len(header))

    assert [[1.0, 2.0], ["ab", {"bytes": 1}], [7]] == [output["data"] for output in answer["outputs"]]
