"""Which backend runs a bundle."""

from __future__ import annotations

from typing import Any

import pytest

from functions.config.backend import KNOWN, choose
from functions.errors import BundleRefused
from workers.backends import BACKENDS

STEPS: dict[str, Any] = {"ensemble_scheduling": {"step": []}}
ONNX = ("onnxruntime", "onnxruntime_onnx", "model.onnx")
PYTHON = ("python", "", "model.py")
CHOSEN: list[tuple[dict[str, Any], set[str], tuple[str, str, str]]] = [
    ({}, {"model.py"}, PYTHON),
    ({}, {"model.onnx"}, ONNX),
    ({}, {"model.onnx", "model.py"}, ONNX),
    ({}, {"model.py", "weights.bin"}, PYTHON),
    ({"backend": "python"}, set(), PYTHON),
    ({"backend": "python"}, {"model.onnx"}, PYTHON),
    ({"backend": "python", "platform": "python"}, set(), ("python", "python", "model.py")),
    ({"backend": "python", "default_model_filename": "serve.py"}, set(), ("python", "", "serve.py")),
    ({"backend": "python", "default_model_filename": "model.onnx"}, set(), ("python", "", "model.onnx")),
    ({"backend": "onnxruntime"}, set(), ONNX),
    ({"platform": "onnxruntime_onnx"}, {"model.py"}, ONNX),
    ({"platform": "onnxruntime_onnx", "default_model_filename": "net.onnx"}, set(), ("onnxruntime", "onnxruntime_onnx", "net.onnx")),
    ({"platform": "python"}, set(), ("python", "python", "model.py")),
    ({"default_model_filename": "model.onnx"}, set(), ONNX),
    ({"default_model_filename": "model.py"}, {"model.onnx"}, PYTHON),
    ({"platform": "ensemble", **STEPS}, set(), ("", "ensemble", "")),
]


@pytest.mark.parametrize(("config", "artifacts", "expected"), CHOSEN)
def test_the_config_or_else_the_files_choose_the_backend(
    config: dict[str, Any], artifacts: set[str], expected: tuple[str, str, str]
) -> None:
    chosen = choose(config, artifacts, "f")

    assert expected == (chosen["backend"], chosen["platform"], chosen["default_model_filename"])
    assert chosen == choose({**config, **chosen}, (), "f")


REFUSED: list[tuple[dict[str, Any], set[str], str, str]] = [
    ({}, set(), "backend", "holds nothing"),
    ({}, {"weights.bin", "a"}, "backend", "holds a, weights.bin"),
    ({"default_model_filename": "x.py"}, {"model.py"}, "backend", "nothing tells"),
    ({"backend": "foo"}, {"model.py"}, "backend", "'foo' is unknown; this release runs the backends onnxruntime, python and ensembles"),
    ({"backend": "identity"}, set(), "backend", "unknown"),
    *[
        ({"backend": name}, set[str](), "backend", "not available")
        for name in ("tensorrt", "pytorch", "openvino", "tensorflow", "dali", "fil", "vllm")
    ],
    ({"platform": "tensorrt_plan"}, set(), "backend", "'tensorrt' is not available"),
    ({"platform": "pytorch_libtorch"}, set(), "backend", "'pytorch' is not available"),
    ({"platform": "libtorch"}, set(), "backend", "'pytorch' is not available"),
    ({}, {"model.plan"}, "backend", "'tensorrt' is not available"),
    ({}, {"model.savedmodel"}, "backend", "'tensorflow' is not available"),
    ({"platform": "zzz"}, {"model.py"}, "platform", "'zzz' is unknown"),
    ({"platform": "tensorrt_plan", "backend": "onnxruntime"}, set(), "platform", "does not go with backend 'onnxruntime'"),
    ({"platform": "onnxruntime_onnx", "backend": "python"}, set(), "platform", "does not go with"),
    ({"platform": "ensemble"}, set(), "ensemble_scheduling", "without steps"),
    ({"platform": "ensemble", "backend": "python", **STEPS}, set(), "backend", "leave backend out"),
    ({"platform": "ensemble", "default_model_filename": "model.py", **STEPS}, set(), "default_model_filename", "no file"),
    (STEPS, set(), "platform", 'an ensemble has platform: "ensemble"'),
    ({"backend": "python", **STEPS}, set(), "platform", "an ensemble has platform"),
]


@pytest.mark.parametrize(("config", "artifacts", "field", "message"), REFUSED)
def test_what_cannot_run_here_is_refused_by_name(config: dict[str, Any], artifacts: set[str], field: str, message: str) -> None:
    with pytest.raises(BundleRefused) as caught:
        choose(config, artifacts, "f")

    assert f"config.pbtxt: {field}" == caught.value.field
    assert message in str(caught.value)


def test_what_is_called_available_is_what_workers_can_run() -> None:
    assert {entry.backend for entry in KNOWN if entry.available} == set(BACKENDS)
