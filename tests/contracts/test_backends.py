"""One suite for every backend: what the replica may rely on, whatever library runs the model.

A backend joins by one entry in ``SUBJECTS``: the files of two small models (identity of FP32 [batch, 3]; a model that fails on
execution) and of one that cannot be loaded.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.config.backend import KNOWN
from functions.errors import BundleRefused, ModelFailed, StartFailed
from functions.protocol.values import Request
from tests.workers.backends.onnx_models import identity_model, model, value
from workers.backends import BACKENDS
from workers.backends.base import Backend, Member


@dataclass(frozen=True)
class Subject:
    identity: bytes
    failing: bytes
    broken: bytes


def _failing_onnx() -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    # Three numbers have no rows of seven, which is found only when it runs.
    sevens, threes = (numpy_helper.from_array(np.array([-1, n], np.int64), f"to{n}") for n in (7, 3))
    nodes = [helper.make_node("Reshape", ["IN", "to7"], ["MID"]), helper.make_node("Reshape", ["MID", "to3"], ["OUT"])]
    return model(nodes, [value("IN", ("n", 3))], [value("OUT", ("n", 3), TensorProto.FLOAT)], [sevens, threes])


SUBJECTS: Mapping[str, Subject] = {
    "python": Subject(
        b"""
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("OUT", request.inputs()[0].as_numpy())]) for request in requests]
""",
        b"class TritonPythonModel:\n    def execute(self, requests):\n        raise RuntimeError('no')\n",
        b"import no_such_module_anywhere\nclass TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(c): return c\n",
    ),
    "onnxruntime": Subject(identity_model(shape=("n", 3)), _failing_onnx(), b"not a model"),
}


def test_every_backend_of_the_table_has_a_subject() -> None:
    assert set(BACKENDS) == set(SUBJECTS)


@pytest.fixture(params=sorted(BACKENDS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Made:
    """A version directory with one of the subject's models, and how to open it."""

    def __init__(self, folder: Path, backend: str, artifact: bytes | None) -> None:
        self.entry = BACKENDS[backend]
        self.artifact = next(known.artifact for known in KNOWN if known.backend == backend)
        self.config: dict[str, Any] = {
            "name": "m",
            "backend": backend,
            "max_batch_size": 8,
            "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [3]}],
            "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [3]}],
            "default_model_filename": self.artifact,
        }
        self.version_dir = folder / "4"
        self.version_dir.mkdir()
        if artifact is not None:
            (self.version_dir / self.artifact).write_bytes(artifact)

    @property
    def module(self) -> Any:
        return importlib.import_module(self.entry.module)

    def open(self) -> Backend:
        member = Member("m", 4, str(self.version_dir.parent), str(self.version_dir), self.config, "m_0")
        backend: Backend = getattr(self.module, self.entry.cls)(member)
        return backend

    def inspect(self) -> dict[str, Any]:
        completed: dict[str, Any] = self.module.inspect(self.config, str(self.version_dir))
        return completed


def request(rows: int, fill: float = 1) -> Request:
    return Request({"IN": np.full((rows, 3), fill, np.float32)}, ("OUT",), dtypes={"IN": "FP32"}, deadline=time.monotonic() + 60)


def test_it_answers_one_response_a_request_in_order(tmp_path: Path, name: str) -> None:
    backend = Made(tmp_path, name, SUBJECTS[name].identity).open()
    requests = [request(1, 1), request(3, 2), request(2, 3)]

    responses = backend.execute(requests)

    assert [one.inputs["IN"].tolist() for one in requests] == [one.outputs["OUT"].tolist() for one in responses]
    assert [{"OUT": "FP32"}] * 3 == [one.dtypes for one in responses]
    assert [None] * 3 == [one.error for one in responses]
    backend.close()


def test_it_leaves_the_requests_as_they_were(tmp_path: Path, name: str) -> None:
    backend = Made(tmp_path, name, SUBJECTS[name].identity).open()
    asked = request(2, 5)

    backend.execute([asked])

    assert [[5, 5, 5], [5, 5, 5]] == asked.inputs["IN"].tolist()
    backend.close()


def test_it_tells_where_the_time_went(tmp_path: Path, name: str) -> None:
    backend = Made(tmp_path, name, SUBJECTS[name].identity).open()
    started = time.perf_counter_ns()
    backend.execute([request(1)])
    total = time.perf_counter_ns() - started

    assert all(0 < part < total for part in backend.spent_ns)
    backend.close()


def test_a_model_that_fails_raises_model_failed_and_can_be_asked_again(tmp_path: Path, name: str) -> None:
    backend = Made(tmp_path, name, SUBJECTS[name].failing).open()
    for _ in range(2):
        with pytest.raises(ModelFailed):
            backend.execute([request(1)])
    backend.close()


@pytest.mark.parametrize("missing", [False, True])
def test_what_cannot_be_loaded_is_a_start_failed(tmp_path: Path, name: str, missing: bool) -> None:
    made = Made(tmp_path, name, None if missing else SUBJECTS[name].broken)

    with pytest.raises(StartFailed):
        made.open()


@pytest.mark.parametrize("missing", [False, True])
def test_what_cannot_be_loaded_is_refused_at_publish_with_its_file(tmp_path: Path, name: str, missing: bool) -> None:
    made = Made(tmp_path, name, None if missing else SUBJECTS[name].broken)

    with pytest.raises(BundleRefused) as refused:
        made.inspect()

    assert refused.value.field.startswith(f"4/{made.artifact}")
    assert refused.value.fix


def test_inspection_of_a_complete_config_changes_nothing(tmp_path: Path, name: str) -> None:
    made = Made(tmp_path, name, SUBJECTS[name].identity)

    assert made.config == made.inspect()
