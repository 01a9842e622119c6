from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from functions.errors import InvalidRequest
from functions.protocol.v2_data import Literal, from_json, to_json

AS = "Unable to parse 'data': attempt to access JSON"


def parsed(text: str) -> Any:
    return json.JSONDecoder(parse_constant=Literal).decode(text)


@pytest.mark.parametrize(
    ("text", "datatype", "expected"),
    [
        ("[256, 257]", "UINT8", [0, 1]),
        ("[200, -129]", "INT8", [-56, 127]),
        ("[2147483648]", "INT32", [-2147483648]),
        ("[18446744073709551615]", "UINT64", [18446744073709551615]),
        ("[1, 2.5]", "FP32", [1.0, 2.5]),
        ("[1e39, -Infinity]", "FP32", [float("inf"), float("-inf")]),
        ("[true, false]", "BOOL", [True, False]),
        ('["a", ""]', "BYTES", [b"a", b""]),
        ("[]", "FP64", []),
        ("[[[1, 2]], [[3, 4]]]", "INT64", [1, 2, 3, 4]),
        ("[1, [2, [[3], 4]], [], 5]", "INT64", [1, 2, 3, 4, 5]),
    ],
)
def test_lists_become_arrays_as_triton_reads_them(text: str, datatype: str, expected: list[Any]) -> None:
    assert expected == from_json(parsed(text), datatype, (len(expected),), "I").tolist()


@pytest.mark.parametrize(
    ("text", "datatype", "message"),
    [
        ("[1.0]", "INT32", f"{AS} non-signed-integer as signed-integer"),
        ("[true]", "INT32", f"{AS} non-signed-integer as signed-integer"),
        ('["1"]', "INT32", f"{AS} non-signed-integer as signed-integer"),
        ("[9223372036854775808]", "INT64", f"{AS} non-signed-integer as signed-integer"),
        ("[-1]", "UINT8", f"{AS} non-unsigned-integer as unsigned-integer"),
        ("[1.5]", "UINT64", f"{AS} non-unsigned-integer as unsigned-integer"),
        ("[18446744073709551616]", "UINT64", f"{AS} non-unsigned-integer as unsigned-integer"),
        ('["1"]', "FP32", f"{AS} non-number as double"),
        ("[null]", "FP64", f"{AS} non-number as double"),
        ("[true]", "FP64", f"{AS} non-number as double"),
        ("[1]", "BOOL", f"{AS} non-boolean as boolean"),
        ("[1]", "BYTES", "Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
        ("[{}]", "FP32", f"{AS} non-number as double"),
        ("5", "FP32", f"{AS} non-array as array"),
        ("null", "FP32", f"{AS} non-array as array"),
        ("[1e400]", "FP64", "failed to parse the request JSON buffer: Number too big to be stored in double."),
        (f"[1{'0' * 400}]", "FP32", "failed to parse the request JSON buffer: Number too big to be stored in double."),
        ("[1]", "FP16", "receiving FP16 data via JSON is not supported. Please use the binary data format for input I"),
    ],
)
def test_elements_of_another_kind_are_refused(text: str, datatype: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        from_json(parsed(text), datatype, (1,), "I")

    assert message == caught.value.message


def test_a_string_with_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a string has no UTF-8 form"):
        from_json(parsed('["\\ud800"]'), "BYTES", (1,), "I")


def test_nan_goes_both_ways() -> None:
    array = from_json(parsed("[NaN]"), "FP32", (1,), "I")

    assert np.isnan(array[0])
    assert "[NaN]" == json.dumps(to_json(array, "FP32", "O"))


def test_a_float_is_printed_as_the_double_it_is() -> None:
    text = json.dumps(to_json(np.array([0.1, 1.0, 1e-10], np.float32), "FP32", "O"))

    assert "[0.10000000149011612, 1.0, 1.000000013351432e-10]" == text


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_floats_have_no_json_form(datatype: str) -> None:
    with pytest.raises(InvalidRequest, match=f"sending {datatype} data via JSON is not supported"):
        to_json(np.zeros(1, np.uint16), datatype, "O")


def test_a_list_of_mixed_depth_costs_its_elements_not_elements_times_depth() -> None:
    """Flattening level by level would copy the long tail once for each of the 900 levels."""
    deep: list[Any] = [1]
    for _ in range(900):
        deep = [deep, 1]
    tail = [1] * 100_000

    assert 100_901 == len(from_json([deep, *tail], "INT32", (100_901,), "I"))
