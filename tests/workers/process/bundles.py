"""Small bundles and their configurations, as the node's cache would lay them out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.process.spec import MemberSpec

DIGEST = "sha256:" + "ab" * 32

IDENTITY = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            answers = []
            for request in requests:
                tensor = pb_utils.get_input_tensor_by_name(request, "IN")
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor.as_numpy())]))
            return answers
"""


def config(
    name: str,
    *,
    backend: str = "python",
    batch: int = 0,
    inputs: Mapping[str, tuple[str, Sequence[int]]] | None = None,
    outputs: Mapping[str, tuple[str, Sequence[int]]] | None = None,
    count: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """A normalised configuration: one input IN and one output OUT of FP32[16] unless told otherwise."""
    return {
        "name": name,
        "backend": backend,
        "platform": "",
        "max_batch_size": batch,
        "input": [_tensor(*each) for each in (inputs or {"IN": ("TYPE_FP32", [16])}).items()],
        "output": [_tensor(*each) for each in (outputs or {"OUT": ("TYPE_FP32", [16])}).items()],
        "instance_group": [{"name": name, "kind": "KIND_CPU", "count": count}],
        "default_model_filename": "model.py" if backend == "python" else "model.onnx",
        **more,
    }


def ensemble(name: str, steps: Sequence[tuple[str, dict[str, str], dict[str, str]]], **more: Any) -> dict[str, Any]:
    made = config(name, backend="", **more)
    made["platform"] = "ensemble"
    made["instance_group"] = []
    made["ensemble_scheduling"] = {
        "step": [
            {"model_name": model, "model_version": -1, "input_map": input_map, "output_map": output_map}
            for model, input_map, output_map in steps
        ]
    }
    return made


def member(
    root: Path,
    config: Mapping[str, Any],
    files: Mapping[str, str | bytes] | None = None,
    *,
    version: int = 1,
    lock: Mapping[str, int] | None = None,
    shared: Sequence[str] = (),
    threads: int = 1,
) -> MemberSpec:
    """Write the bundle (``files`` by path in its version directory, sources dedented) and tell where it lies."""
    model_dir = root / config["name"] / f"v{version}"
    version_dir = model_dir / str(version)
    version_dir.mkdir(parents=True)
    for path, content in (files or {}).items():
        file = version_dir / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else textwrap.dedent(content).encode())
    return MemberSpec(config["name"], version, DIGEST, str(model_dir), config, dict(lock or {}), tuple(shared), threads)


def _tensor(name: str, kind: tuple[str, Sequence[int]]) -> dict[str, Any]:
    return {"name": name, "data_type": kind[0], "dims": list(kind[1])}
