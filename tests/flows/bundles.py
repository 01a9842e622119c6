"""Small bundles that the flows write: each says in its docstring what it answers."""

from __future__ import annotations

import textwrap
from pathlib import Path


def python(root: Path, name: str, config: str, code: str, **files: str) -> Path:
    """A Python bundle: ``config`` after ``backend: "python"``, ``code`` as 1/model.py, other files by path."""
    bundle = root / name
    (bundle / "1").mkdir(parents=True, exist_ok=True)
    (bundle / "config.pbtxt").write_text(f'backend: "python"\n{textwrap.dedent(config)}')
    (bundle / "1" / "model.py").write_text(textwrap.dedent(code))
    for path, text in files.items():
        (bundle / path).parent.mkdir(parents=True, exist_ok=True)
        (bundle / path).write_text(textwrap.dedent(text))
    return bundle


def identity(root: Path, name: str = "identity", *, dims: int = 16, batch: int = 64) -> Path:
    """FP32 X → the same as Y, batched."""
    return python(
        root,
        name,
        f"""
        max_batch_size: {batch}
        input [{{ name: "X", data_type: TYPE_FP32, dims: [{dims}] }}]
        output [{{ name: "Y", data_type: TYPE_FP32, dims: [{dims}] }}]
        dynamic_batching {{ }}
        """,
        """
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                answers = []
                for request in requests:
                    x = pb_utils.get_input_tensor_by_name(request, "X")
                    answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())]))
                return answers
        """,
    )


def constant(root: Path, name: str, value: int) -> Path:
    """INT32 X [1] → Y [1]: always ``value``. A new value is a new version."""
    return python(
        root,
        name,
        """
        max_batch_size: 16
        input [{ name: "X", data_type: TYPE_INT32, dims: [1] }]
        output [{ name: "Y", data_type: TYPE_INT32, dims: [1] }]
        dynamic_batching { }
        """,
        f"""
        import numpy as np
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                return [
                    pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full(r.inputs()[0].as_numpy().shape, {value}, np.int32))])
                    for r in requests
                ]
        """,
    )


def caller(root: Path, name: str, callee: str, value: int) -> Path:
    """INT32 X [1] → OWN [1]: ``value``, LEAF [1]: what ``callee`` answers, by a BLS call."""
    return python(
        root,
        name,
        """
        max_batch_size: 16
        input [{ name: "X", data_type: TYPE_INT32, dims: [1] }]
        output [{ name: "OWN", data_type: TYPE_INT32, dims: [1] }, { name: "LEAF", data_type: TYPE_INT32, dims: [1] }]
        dynamic_batching { }
        """,
        f"""
        import numpy as np
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                answers = []
                for request in requests:
                    x = pb_utils.get_input_tensor_by_name(request, "X")
                    inner = pb_utils.InferenceRequest(model_name="{callee}", requested_output_names=["Y"], inputs=[x]).exec()
                    if inner.has_error():
                        answers.append(pb_utils.InferenceResponse(error=inner.error()))
                        continue
                    leaf = pb_utils.get_output_tensor_by_name(inner, "Y").as_numpy()
                    own = np.full(leaf.shape, {value}, np.int32)
                    answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OWN", own), pb_utils.Tensor("LEAF", leaf)]))
                return answers
        """,
    )


def pipeline(root: Path, name: str = "pipeline") -> Path:
    """An ensemble of ``step`` (constant) and ``child`` (caller of ``leaf``): STEP, OWN and LEAF, one number each."""
    bundle = root / name
    (bundle / "1").mkdir(parents=True, exist_ok=True)
    (bundle / "config.pbtxt").write_text(
        textwrap.dedent(
            """
            platform: "ensemble"
            max_batch_size: 16
            input [{ name: "X", data_type: TYPE_INT32, dims: [1] }]
            output [
              { name: "STEP", data_type: TYPE_INT32, dims: [1] },
              { name: "OWN", data_type: TYPE_INT32, dims: [1] },
              { name: "LEAF", data_type: TYPE_INT32, dims: [1] }
            ]
            ensemble_scheduling {
              step [
                { model_name: "step" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "Y" value: "STEP" } },
                {
                  model_name: "child" model_version: -1
                  input_map { key: "X" value: "STEP" }
                  output_map { key: "OWN" value: "OWN" }
                  output_map { key: "LEAF" value: "LEAF" }
                }
              ]
            }
            """
        )
    )
    return bundle
