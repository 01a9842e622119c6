"""Unmodified ``tritonclient.http`` against the platform: every datatype in JSON and binary, metadata, config, statistics, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from tests.flows import bundles as make
from tests.flows.platform import Platform

TYPES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"]


@pytest.fixture(scope="module")
def client(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[triton.InferenceServerClient]:
    root = tmp_path_factory.mktemp("clients")
    make.identity(root)
    inputs = ", ".join(f"{{ name: 'I_{t}', data_type: TYPE_{_config(t)}, dims: [-1], optional: true }}" for t in TYPES)
    outputs = ", ".join(f"{{ name: 'O_{t}', data_type: TYPE_{_config(t)}, dims: [-1] }}" for t in TYPES)
    make.python(
        root,
        "types",
        f"input [{inputs}]\noutput [{outputs}]",
        """
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                return [
                    pb_utils.InferenceResponse([pb_utils.Tensor("O" + t.name()[1:], t.as_numpy()) for t in request.inputs()])
                    for request in requests
                ]
        """,
    )
    for name in ("identity", "types"):
        platform.upload(root / name).expect(201)
    connected = triton.InferenceServerClient(f"127.0.0.1:{platform.http_port}")
    yield connected
    connected.close()


def _config(datatype: str) -> str:
    return "STRING" if datatype == "BYTES" else datatype


def _values(datatype: str) -> np.ndarray:
    if datatype == "BYTES":
        return np.array([b"one", "zwei €".encode(), b""], dtype=object)
    return np.array([0, 1, 1], dtype=triton_to_np_dtype(datatype))


@pytest.mark.parametrize("datatype", TYPES)
@pytest.mark.parametrize("binary_in", [True, False], ids=["binary in", "json in"])
@pytest.mark.parametrize("binary_out", [True, False], ids=["binary out", "json out"])
def test_every_datatype_comes_back_as_it_was_sent(
    client: triton.InferenceServerClient, datatype: str, binary_in: bool, binary_out: bool
) -> None:
    if datatype == "FP16" and not (binary_in and binary_out):
        pytest.skip("FP16 has no JSON form in the protocol")
    sent = _values(datatype)
    tensor = triton.InferInput(f"I_{datatype}", [3], datatype)
    tensor.set_data_from_numpy(sent, binary_data=binary_in)
    answer = client.infer(
        "types", [tensor], outputs=[triton.InferRequestedOutput(f"O_{datatype}", binary_data=binary_out)], request_id="r1"
    )
    received = answer.as_numpy(f"O_{datatype}")

    assert answer.get_response()["id"] == "r1"
    assert [_bytes(value) for value in sent] == [_bytes(value) for value in received]


def _bytes(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_compression_works_both_ways(client: triton.InferenceServerClient, algorithm: str, binary: bool) -> None:
    tensor = triton.InferInput("X", [1, 16], "FP32")
    sent = np.arange(16, dtype=np.float32)[None]
    tensor.set_data_from_numpy(sent)
    wanted = [triton.InferRequestedOutput("Y", binary_data=binary)]
    answer = client.infer(
        "identity", [tensor], outputs=wanted, request_compression_algorithm=algorithm, response_compression_algorithm=algorithm
    )

    np.testing.assert_array_equal(sent, answer.as_numpy("Y"))


def test_health_metadata_config_and_statistics(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("identity")
    assert not client.is_model_ready("nobody")

    metadata = client.get_model_metadata("identity")

    assert metadata["inputs"] == [{"name": "X", "datatype": "FP32", "shape": [-1, 16]}]
    assert metadata["platform"] == "python"
    assert client.get_server_metadata()["name"]

    config = client.get_model_config("identity")

    assert (config["name"], config["max_batch_size"], config["backend"]) == ("identity", 64, "python")

    before = client.get_inference_statistics("identity")["model_stats"][0]["inference_stats"]["success"]["count"]
    tensor = triton.InferInput("X", [1, 16], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 16), np.float32))
    client.infer("identity", [tensor])
    after = client.get_inference_statistics("identity")["model_stats"][0]["inference_stats"]["success"]["count"]

    assert after == before + 1


@pytest.mark.parametrize(
    ("name", "shape", "datatype", "status", "says"),
    [
        ("nobody", [1, 16], "FP32", "404", "Request for unknown model: 'nobody' is not found"),
        ("identity", [1, 15], "FP32", "400", "unexpected shape for input 'X' for model 'identity'. Expected [-1,16], got [1,15]"),
        ("identity", [65, 16], "FP32", "400", "inference request batch-size must be <= 64 for 'identity'"),
        ("identity", [1, 16], "INT32", "400", "inference input 'X' data-type is 'INT32', but model 'identity' expects 'FP32'"),
    ],
)
def test_faults_read_as_they_do_on_triton(
    client: triton.InferenceServerClient, name: str, shape: list[int], datatype: str, status: str, says: str
) -> None:
    tensor = triton.InferInput("X", shape, datatype)
    tensor.set_data_from_numpy(np.zeros(shape, triton_to_np_dtype(datatype)))
    with pytest.raises(InferenceServerException) as raised:
        client.infer(name, [tensor])

    assert raised.value.status() == status
    assert says in raised.value.message()


def test_the_root_of_a_bundle_may_be_named_by_the_query(platform: Platform, tmp_path: Path) -> None:
    platform.upload(make.identity(tmp_path, "local_name"), name="served_name").expect(201)

    assert platform.request("GET", "/v2/models/served_name").expect(200).json["name"] == "served_name"
