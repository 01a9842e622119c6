"""Every example function through an unmodified ``tritonclient.http``, in JSON and in binary, on real pictures and digits."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from tritonclient import http as triton

from functions.examples import digits, pictures, resnet50
from tests.flows.platform import Platform, despina
from tests.functions.examples.conftest import repository

__all__ = ["repository"]

Tensors = Mapping[str, tuple[str, np.ndarray]]


@pytest.fixture(scope="module")
def client(platform: Platform, repository: Path) -> Iterator[triton.InferenceServerClient]:
    bundles = sorted(str(path.parent) for path in repository.glob("*/config.pbtxt"))
    deployed = subprocess.run(
        [despina(), "deploy", *bundles, "--url", f"http://127.0.0.1:{platform.http_port}", "--wait", "120"],
        capture_output=True,
        text=True,
        timeout=280,
    )

    assert deployed.returncode == 0, deployed.stderr

    with triton.InferenceServerClient(f"127.0.0.1:{platform.http_port}", network_timeout=120, connection_timeout=120) as connected:
        yield connected


def _page(binary: bool) -> np.ndarray:
    """JSON has no raw bytes: there the picture travels as base64 text."""
    data = pictures.page().read_bytes()
    return np.array([data if binary else base64.b64encode(data)], dtype=object)


def _ask(client: triton.InferenceServerClient, name: str, inputs: Tensors, *, binary: bool) -> dict[str, np.ndarray]:
    tensors = []
    for key, (datatype, value) in inputs.items():
        tensor = triton.InferInput(key, list(value.shape), datatype)
        tensor.set_data_from_numpy(value, binary_data=binary)
        tensors.append(tensor)
    wanted = [triton.InferRequestedOutput(output["name"], binary_data=binary) for output in client.get_model_metadata(name)["outputs"]]
    answer = client.infer(name, tensors, outputs=wanted)
    return {output.name(): answer.as_numpy(output.name()) for output in wanted}


def _both(client: triton.InferenceServerClient, name: str, inputs: Tensors) -> dict[str, np.ndarray]:
    """The answer in binary, which the one in JSON must equal."""
    binary, plain = (_ask(client, name, inputs, binary=each) for each in (True, False))

    assert binary.keys() == plain.keys()
    for key in binary:
        if binary[key].dtype == object:
            assert _texts(binary[key]) == _texts(plain[key])
        else:
            np.testing.assert_allclose(binary[key], plain[key], rtol=1e-6)
    return binary


def _texts(array: np.ndarray) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else str(value) for value in array.ravel()]


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_read_text_reads_the_page(client: triton.InferenceServerClient, binary: bool) -> None:
    answer = _ask(client, "read_text", {"IMAGE": ("BYTES", _page(binary))}, binary=binary)
    lines = _texts(answer["TEXT"])

    assert len(lines) == 7
    assert sum(line == right for line, right in zip(lines, pictures.PAGE_TEXT, strict=True)) >= 6
    assert answer["CALLS"][0] >= 1


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_detect_text_finds_the_lines(client: triton.InferenceServerClient, binary: bool) -> None:
    answer = _ask(client, "detect_text", {"IMAGE": ("BYTES", _page(binary))}, binary=binary)

    assert answer["BOXES"].shape == (7, 4, 2)
    assert (answer["SCORES"] > 0.5).all()


def test_the_parts_of_read_text_answer_alone(client: triton.InferenceServerClient) -> None:
    decoded = _ask(client, "decode_image", {"IMAGE": ("BYTES", _page(True))}, binary=True)
    small = {"PIXELS": decoded["PIXELS"][:, :, :64, :96].copy(), "PICTURE": decoded["PICTURE"][:64, :96].copy()}
    found = _both(client, "text_detector", {"x": ("FP32", small["PIXELS"])})
    boxes = _both(client, "text_boxes", {"PROBABILITY": ("FP32", found["fetch_name_0"]), "PICTURE": ("UINT8", small["PICTURE"])})
    read = _both(client, "text_recognizer", {"x": ("FP32", np.zeros((1, 3, 48, 96), np.float32))})

    assert found["fetch_name_0"].shape == (1, 1, 64, 96)
    assert boxes["BOXES"].shape[1:] == (4, 2)
    assert read["character"].shape == read["probability"].shape


def test_digits_and_its_two_models_answer_alike(client: triton.InferenceServerClient) -> None:
    _, held_out = digits.split()
    pixels = np.ascontiguousarray(held_out.pixels[:8], dtype=np.float32)
    cascade = _both(client, "digits", {"pixels": ("FP32", pixels)})
    small = _both(client, "digits_small", {"pixels": ("FP32", pixels)})
    big = _both(client, "digits_big", {"pixels": ("FP32", pixels)})

    assert cascade["label"].shape == (8, 1)
    for row, escalated in enumerate(cascade["escalated"].ravel()):
        assert cascade["label"][row, 0] == (big if escalated else small)["label"][row, 0]


def test_resnet50_answers_what_its_package_says(client: triton.InferenceServerClient) -> None:
    answer = _both(client, "resnet50", {"gpu_0/data_0": ("FP32", resnet50.probe())})

    np.testing.assert_allclose(answer["gpu_0/softmax_1"], resnet50.expected(), rtol=1e-3, atol=1e-5)


def test_identity_answers_what_it_is_sent(client: triton.InferenceServerClient) -> None:
    sent = np.arange(32, dtype=np.float32).reshape(2, 16)

    np.testing.assert_array_equal(sent, _both(client, "identity", {"INPUT": ("FP32", sent)})["OUTPUT"])
