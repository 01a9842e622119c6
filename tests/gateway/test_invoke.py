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
        {"name": "U", "datatype": "UINT64", "shape": [-1]},
        {"name": "H", "datatype": "FP16", "shape": [-1]},
        {"name": "B", "datatype": "BOOL", "shape": [-1]},
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
        ({"X": [[1, "b"]]}, r"'X' is FP32: element \[0, 1\], 'b', is not"),
        ({"X": ["a", 1]}, r"element \[0\], 'a', is not"),
        ({"X": [[1, 2], [1, None]]}, r"element \[1, 1\], None, is not"),
        ({"X": [1e39, 0]}, r"element \[0\], 1e\+39, is not from -3.40282e\+38"),
        ({"X": [0, 10**400]}, r"element \[1\], 1000"),
        ({"H": [65504, 65520]}, r"element \[1\], 65520, is not from -65504 to 65504"),
        ({"N": [[1.5]]}, r"INT8: element \[0, 0\], 1.5, is not"),
        ({"N": 1.5}, r"INT8: 1.5, is not"),
        ({"N": [[True]]}, "True, is not"),
        ({"N": [[1], [300]]}, r"element \[1, 0\], 300, is not from -128 to 127"),
        ({"U": [1, 2**64]}, r"element \[1\], 18446744073709551616, is not from 0"),
        ({"U": [2**63, -1]}, r"element \[1\], -1, is not from 0"),
        ({"B": [True, 1]}, r"element \[1\], 1, is not"),
        ({"S": [1]}, r"element \[0\], 1, is not: .* strings"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_before_it_is_sent(values: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        invoke.from_values(METADATA, values)


def test_what_the_type_has_is_sent_to_its_last_value() -> None:
    given = {"X": [float("inf"), 3.4e38], "U": [2**64 - 1, 0], "H": [65504.0, -1e-9], "B": [True, False]}
    tensors = {tensor.name: tensor.array for tensor in invoke.from_values(METADATA, given)}

    assert [2**64 - 1, 0] == tensors["U"].tolist()
    assert [65504.0, -0.0] == tensors["H"].tolist()
    assert [True, False] == tensors["B"].tolist()
    assert np.isinf(tensors["X"][0, 0])
    assert np.isfinite(tensors["X"][0, 1])


def test_a_v2_request_is_checked_like_typed_values_and_may_be_flat() -> None:
    request = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]}

    assert [[1.0, 2.0], [3.0, 4.0]] == invoke.from_request(METADATA, request)[0].array.tolist()

    for broken, says in (({"shape": [3, 2]}, "do not make"), ({"datatype": "FP64"}, "not FP64"), ({"name": "Q"}, "no input 'Q'")):
        with pytest.raises(InvalidRequest, match=says):
            invoke.from_request(METADATA, {"inputs": [{**request["inputs"][0], **broken}]})
    with pytest.raises(InvalidRequest, match="given twice"):
        invoke.from_request(METADATA, {"inputs": request["inputs"] * 2})


def test_a_picture_goes_as_one_string_of_bytes() -> None:
    (tensor,) = invoke.from_image(PICTURE, b"\x89PNG")

    assert ("IMAGE", (1, 1), b"\x04\x00\x00\x00\x89PNG") == (tensor.name, tensor.array.shape, tensor.data())

    with pytest.raises(InvalidRequest, match="does not take one encoded picture"):
        invoke.from_image(METADATA, b"")


def test_typed_values_are_json_or_a_file_of_json_or_a_string_for_bytes(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text("[[1, 2]]")

    for text in ("X=[[1, 2]]", f"X=@{tmp_path}/v.json"):
        assert [[1.0, 2.0]] == invoke.from_typed(METADATA, [text])[0].array.tolist()
    assert ["a=b [c"] == invoke.from_typed(METADATA, ["S=a=b [c"])[0].array.tolist()


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["X"], "not NAME=VALUE"),
        (["=1"], "not NAME=VALUE"),
        (["X=@/does/not/exist"], "cannot be read"),
        (["X=[[1, 2"], r"X: not JSON: .*line 1 column 7 \(char 6\)"),
        (["X=[[1, 2]]", "X=[[3, 4]]"], "'X' is given twice"),
        (["X=[[1, 1e400]]"], "1e400 is out of the range"),
        (["Q=oh"], "no input 'Q'"),
    ],
)
def test_what_is_typed_wrongly_is_refused(texts: list[str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        invoke.from_typed(METADATA, texts)


def test_a_file_of_broken_json_is_refused_also_for_bytes(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text('["a"')
    with pytest.raises(InvalidRequest, match=r"v\.json: not JSON: .*column 5"):
        invoke.from_typed(METADATA, [f"S=@{tmp_path}/v.json"])


def test_a_batch_is_compared_with_what_the_function_takes() -> None:
    tensors = invoke.from_values(METADATA, {"X": [[1, 2]] * 9, "S": "a"})

    assert 9 == invoke.batch(tensors, METADATA)
    for most in (0, 9):
        invoke.check_batch(9, {"name": "f", "max_batch_size": most})
    with pytest.raises(InvalidRequest, match=r"a batch of 9: f takes at most 8"):
        invoke.check_batch(9, {"name": "f", "max_batch_size": 8})


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
