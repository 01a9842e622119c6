"""Requests that other models and ensembles make; what clients send is in test_v2_errors."""

from __future__ import annotations

import numpy as np
import pytest

from functions.errors import InvalidRequest
from functions.protocol.rules import Rules
from functions.protocol.values import Request
from tests.functions.protocol.models import IDF, OPT


def test_a_request_from_inside_is_completed_from_its_arrays_and_the_configuration() -> None:
    request = Request({"A": np.array([[1]], np.int32)}, ())
    Rules(OPT).complete(request)

    assert ({"A": "INT32"}, ("O", "P")) == (request.dtypes, request.outputs)


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ({"INPUT0": np.zeros((1, 4), np.float64)}, (), "data-type is 'FP64', but model 'idf' expects 'FP32'"),
        ({"INPUT0": np.zeros((1, 5), np.float32)}, (), r"Expected \[-1,4\], got \[1,5\]"),
        ({"INPUT0": np.zeros((9, 4), np.float32)}, (), "batch-size must be <= 8"),
        ({}, (), "expected 1 inputs but got 0"),
        ({"INPUT0": np.zeros((1, 4), np.float32)}, ("NOPE",), "unexpected inference output 'NOPE'"),
        ({"INPUT0": np.zeros((1, 4), np.complex64)}, (), "complex64"),
    ],
)
def test_it_is_held_to_the_same_rules(inputs: dict[str, np.ndarray], outputs: tuple[str, ...], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        Rules(IDF).complete(Request(inputs, outputs))
