from __future__ import annotations

import numpy as np
import pytest

from functions.config.spec import ModelConfig
from functions.errors import InvalidRequest
from functions.protocol.frames import NO_HEADER
from functions.protocol.v2 import Codec
from tests.functions.protocol.models import IDF, NOB, TEXT, TYPES, model, tensor

TEXT_BATCHED = model("t", 4, [tensor("I", "BYTES", [1])], [tensor("O", "BYTES", [1])])
TWO_OPEN = model("w", 0, [tensor("I", "FP32", [-1, -1])], [tensor("O", "FP32", [-1])])
FOUR_STRINGS = model("four", 0, [tensor("I", "BYTES", [4])], [tensor("O", "BYTES", [4])])


@pytest.mark.parametrize(
    ("config", "body", "name", "shape"),
    [(IDF, bytes(16), "INPUT0", (1, 4)), (NOB, bytes(24), "INPUT0", (3, 2)), (NOB, b"", "INPUT0", (0, 2))],
)
def test_a_body_without_json_is_the_only_input(config: ModelConfig, body: bytes, name: str, shape: tuple[int, ...]) -> None:
    decoded = Codec(config, 1).decode(memoryview(body), 0)

    assert shape == decoded.request.inputs[name].shape
    assert decoded.default.binary
    assert "" == decoded.request.id


@pytest.mark.parametrize(("config", "shape"), [(TEXT, (1,)), (TEXT_BATCHED, (1, 1))])
def test_a_raw_string_needs_no_length(config: ModelConfig, shape: tuple[int, ...]) -> None:
    array = Codec(config, 1).decode(memoryview(b"hello"), 0).request.inputs["I"]

    assert (shape, b"hello") == (array.shape, array.flat[0])


@pytest.mark.parametrize(
    ("config", "body", "text"),
    [
        (TYPES, b"x", "Raw request must only have 1 input (found 1) to be deduced but got 14 inputs in 'types' model configuration"),
        (IDF, b"", "[request id: <id_unknown>] input byte size mismatch for input 'raw_input' for model 'idf'. Expected 16, got 0"),
        (NOB, bytes(9), "[request id: <id_unknown>] input byte size mismatch for input 'raw_input' for model 'nob'. Expected 8, got 9"),
        (
            TWO_OPEN,
            bytes(8),
            "[request id: <id_unknown>] the shape of the raw input for model 'w' can not be deduced: it has 2 dimensions of variable size",
        ),
        (
            FOUR_STRINGS,
            b"a",
            "[request id: <id_unknown>] the raw input for model 'four' is one string, but its configuration asks for 4",
        ),
    ],
)
def test_a_raw_body_that_cannot_be_the_input_is_refused(config: ModelConfig, body: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Codec(config, 1).decode(memoryview(body), 0)

    assert text == caught.value.message


def test_an_empty_body_without_a_header_is_a_raw_request_too() -> None:
    with pytest.raises(InvalidRequest, match="input 'raw_input'"):
        Codec(IDF, 1).decode(memoryview(b""), NO_HEADER)


def test_a_raw_input_can_be_written_to() -> None:
    array = Codec(IDF, 1).decode(memoryview(bytes(16)), 0).request.inputs["INPUT0"]
    array += 1

    np.testing.assert_array_equal(np.ones((1, 4), np.float32), array)
