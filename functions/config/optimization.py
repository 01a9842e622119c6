"""The ``optimization`` message: kept and echoed, with Triton's defaults; what only a GPU can do is listed as a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from functions.errors import BundleRefused

_FIELD = "config.pbtxt: optimization"
_DEFAULTS: dict[str, Any] = {
    "priority": "PRIORITY_DEFAULT",
    "input_pinned_memory": {"enable": True},
    "output_pinned_memory": {"enable": True},
    "gather_kernel_buffer_threshold": 0,
    "eager_batching": False,
}
_ORDER = (
    "graph",
    "priority",
    "cuda",
    "execution_accelerators",
    "input_pinned_memory",
    "output_pinned_memory",
    "gather_kernel_buffer_threshold",
    "eager_batching",
)


def complete(config: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """The message with its defaults, in Triton's order. Raises BundleRefused for CPU accelerators, which change results' cost
    and are not available."""
    given = {**_DEFAULTS, **config.get("optimization", {})}
    accelerators = given.get("execution_accelerators", {})
    if accelerators.get("cpu_execution_accelerator"):
        names = ", ".join(repr(entry["name"]) for entry in accelerators["cpu_execution_accelerator"])
        raise BundleRefused(
            f"{names} is not available in this release",
            field=f"{_FIELD}.execution_accelerators.cpu_execution_accelerator",
            fix="remove it; the default CPU kernels are used",
        )
    for key, default in _DEFAULTS.items():
        if given[key] != default:
            warnings.append(f"{_FIELD}.{key}: kept without effect, because there is no GPU here")
    if "cuda" in given:
        warnings.append(f"{_FIELD}.cuda: kept without effect, because there is no GPU here")
    if accelerators.get("gpu_execution_accelerator"):
        warnings.append(f"{_FIELD}.execution_accelerators.gpu_execution_accelerator: kept without effect, because there is no GPU here")
    if "graph" in given and config["backend"] != "onnxruntime":
        warnings.append(f"{_FIELD}.graph: has no meaning for the backend {config['backend']!r}")
    return {key: given[key] for key in _ORDER if key in given}
