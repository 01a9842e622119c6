"""Triton's own Python client writes what is decoded here, and reads what is encoded."""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from functions.protocol.frames import NO_HEADER
from functions.protocol.v2 import Codec
from functions.protocol.values import Response
from functions.tensors import DTYPES
from tests.functions.protocol.models import LAB, TYPES

SAMPLES = {
    "BOOL": [True, False],
    "BYTES": ["é".encode(), b""],
    **{name: [1, 2] for name in DTYPES if name not in ("BOOL", "BYTES", "BF16")},
}


def ask(codec: Codec, inputs: list[InferInput], outputs: list[InferRequestedOutput] | None, answer: Response) -> object:
    body, length = InferenceServerClient.generate_request_body(inputs, outputs=outputs, request_id="r")
    decoded = codec.decode(memoryview(body), NO_HEADER if length is None else length)
    answer.outputs.update({name.replace("I_", "O_"): array for name, array in decoded.request.inputs.items() if name.startswith("I_")})
    encoded = codec.encode(decoded, answer)
    header_length = None if encoded.header_length == NO_HEADER else encoded.header_length
    return InferenceServerClient.parse_response_body(b"".join(encoded.parts), header_length=header_length)


@pytest.mark.parametrize(("name", "binary"), [*((name, True) for name in SAMPLES), *((name, False) for name in SAMPLES if name != "FP16")])
def test_every_type_comes_back_as_it_went(name: str, binary: bool) -> None:
    array = np.array(SAMPLES[name], DTYPES[name].numpy)
    sent = InferInput(f"I_{name}", [2], name)
    sent.set_data_from_numpy(array, binary_data=binary)
    result = ask(Codec(TYPES, 1), [sent], [InferRequestedOutput(f"O_{name}", binary_data=binary)], Response())

    expected = [text.decode() for text in SAMPLES[name]] if name == "BYTES" and not binary else array.tolist()
    assert expected == result.as_numpy(f"O_{name}").tolist()  # type: ignore[attr-defined]
    assert "r" == result.get_response()["id"]  # type: ignore[attr-defined]


def test_without_a_list_of_outputs_the_client_gets_all_in_binary() -> None:
    sent = InferInput("INPUT0", [1, 4], "FP32")
    sent.set_data_from_numpy(np.zeros((1, 4), np.float32))
    answer = Response({"OUTPUT0": np.ones((1, 4), np.float32), "OUT2": np.ones((1, 4), np.int32)}, {"OUTPUT0": "FP32", "OUT2": "INT32"})
    result = ask(Codec(LAB, 1), [sent], None, answer)

    assert [[1, 1, 1, 1]] == result.as_numpy("OUT2").tolist()  # type: ignore[attr-defined]
    assert all("binary_data_size" in output["parameters"] for output in result.get_response()["outputs"])  # type: ignore[attr-defined]


def test_classes_are_asked_for_and_read() -> None:
    sent = InferInput("INPUT0", [1, 4], "FP32")
    sent.set_data_from_numpy(np.zeros((1, 4), np.float32))
    answer = Response({"OUTPUT0": np.array([[0.1, 0.4, 0.3, 0.2]], np.float32)}, {"OUTPUT0": "FP32"})
    codec = Codec(LAB, 1, {"OUTPUT0": ("a", "b", "c", "d")})
    result = ask(codec, [sent], [InferRequestedOutput("OUTPUT0", class_count=2)], answer)

    assert [[b"0.400000:1:b", b"0.300000:2:c"]] == result.as_numpy("OUTPUT0").tolist()  # type: ignore[attr-defined]
