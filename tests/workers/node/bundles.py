"""Small bundles to inspect and to run."""

from __future__ import annotations

from pathlib import Path

CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }
"""
MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())])
            for request in requests
        ]
"""
COMPLETING = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
{body}
        return config

    def execute(self, requests):
        return []
"""


def write(root: Path, model: str = MODEL, config: str = CONFIG, **files: str) -> Path:
    """A Python bundle at ``root``; further files by path, with ``__`` for ``/``."""
    (root / "1").mkdir(parents=True)
    (root / "1" / "model.py").write_text(model)
    (root / "config.pbtxt").write_text(config)
    for path, text in files.items():
        (root / path.replace("__", "/")).write_text(text)
    return root


def completing(body: str) -> str:
    """A model whose auto_complete_config runs ``body``."""
    return COMPLETING.format(body="\n".join(f"        {line}" for line in body.strip().splitlines()))
