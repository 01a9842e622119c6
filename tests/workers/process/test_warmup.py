"""Warm-up data: what is made for a sample, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.config.spec import ModelConfig
from functions.errors import StartFailed
from tests.workers.process.bundles import config, member
from tests.workers.process.closures import loaded
from workers.process.warmup import requests


def made(folder: Path, batch: int = 4, size: int = 2, **data: Any) -> list[Any]:
    entry = {"data_type": "TYPE_FP32", "dims": [3], **data}
    sample = {"name": "s", "batch_size": size, "count": 0, "inputs": {"X": entry}}
    spec = ModelConfig.of(config("m", batch=batch, model_warmup=[sample]))
    return requests(spec.warmups[0], spec, str(folder))


def test_a_sample_is_so_many_requests_of_one_item(tmp_path: Path) -> None:
    found = made(tmp_path, zero_data=True)

    assert [[[0, 0, 0]], [[0, 0, 0]]] == [request.inputs["X"].tolist() for request in found]


def test_random_data_is_of_its_type_and_not_all_the_same(tmp_path: Path) -> None:
    for kind in ("TYPE_FP32", "TYPE_INT8", "TYPE_UINT64", "TYPE_BOOL", "TYPE_FP16"):
        (request,) = made(tmp_path, size=1, data_type=kind, dims=[64], random_data=True)

        assert len(set(request.inputs["X"].ravel().tolist())) > 1, kind


def test_random_strings_are_empty(tmp_path: Path) -> None:
    (request,) = made(tmp_path, size=1, data_type="TYPE_STRING", random_data=True)

    assert [[b"", b"", b""]] == request.inputs["X"].tolist()


def test_data_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "x").write_bytes(np.array([1, 2, 3], np.float32).tobytes())
    (request,) = made(tmp_path, size=1, input_data_file="x")

    assert [[1, 2, 3]] == request.inputs["X"].tolist()


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"dims": [-1], "zero_data": True}, "all variable-size dimensions are specified for input 'X'"),
        ({"input_data_file": "short"}, "warmup setting expects 12 bytes, but the data provided from short only has 4 bytes"),
        ({"input_data_file": "none"}, "cannot be read"),
        ({"size": 5, "zero_data": True}, "has batch_size 5; the model takes 4"),
        ({"size": 2, "batch": 0, "zero_data": True}, "has batch_size 2; the model takes 1"),
    ],
)
def test_what_cannot_be_made_is_a_start_failed(tmp_path: Path, case: dict[str, Any], expected: str) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "short").write_bytes(b"1234")

    with pytest.raises(StartFailed, match=expected):
        made(tmp_path, **case)


def test_every_member_is_warmed_so_often_as_one_batch_and_nothing_is_counted(tmp_path: Path) -> None:
    source = """
    import triton_python_backend_utils as pb

    class TritonPythonModel:
        def execute(self, requests):
            print("warm", len(requests), flush=True)
            return [pb.InferenceResponse([pb.Tensor("OUT", request.inputs()[0].as_numpy())]) for request in requests]
    """
    sample = {"name": "s", "batch_size": 3, "count": 2, "inputs": {"IN": {"data_type": "TYPE_FP32", "dims": [16], "zero_data": True}}}
    bundle = member(tmp_path, config("m", batch=4, model_warmup=[sample]), {"model.py": source})
    with loaded(tmp_path, [bundle]) as graph:
        assert 0 == graph.counters("m")["nv_inference_exec_count"]


def test_a_sample_that_breaks_the_models_rules_fails_the_start(tmp_path: Path) -> None:
    sample = {"name": "s", "batch_size": 1, "inputs": {"WRONG": {"data_type": "TYPE_FP32", "dims": [16], "zero_data": True}}}
    source = "class TritonPythonModel:\n    def execute(self, requests): ..."
    bundle = member(tmp_path, config("m", batch=4, model_warmup=[sample]), {"model.py": source})

    with (
        pytest.raises(StartFailed, match="warm-up sample 's' of 'm' failed: unexpected inference input 'WRONG'"),
        loaded(tmp_path, [bundle]),
    ):
        pass
