"""What config.pbtxt says about how onnxruntime is to run a model, as the library's own option objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnxruntime as ort

from functions.errors import StartFailed

_LEVELS = {-1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC, 1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED}
_OFF = 2
"""The level that disables optimisation; any other that is not in the table means all of it, as in Triton."""


def session_options(config: Mapping[str, Any], *, checking: bool = False) -> ort.SessionOptions:
    """The options of a session; ``checking``: of one that only reads the signature. Raises StartFailed for a value that is not a number."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = _number(config, "intra_op_thread_count", 1)
    options.inter_op_num_threads = _number(config, "inter_op_thread_count", 1)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if _number(config, "execution_mode", 0):
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.enable_cpu_mem_arena = bool(_number(config, "enable_mem_arena", 1))
    options.enable_mem_pattern = bool(_number(config, "enable_mem_pattern", 1))
    if _given(config, "session.use_device_allocator_for_initializers") is not None:
        value = str(_number(config, "session.use_device_allocator_for_initializers", 0))
        options.add_session_config_entry("session.use_device_allocator_for_initializers", value)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL if checking else _level(config)
    return options


def run_options(config: Mapping[str, Any]) -> ort.RunOptions | None:
    """The options of each run; None where the config asks for nothing."""
    shrinkage = _given(config, "memory.enable_memory_arena_shrinkage")
    if shrinkage is None:
        return None
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", shrinkage)
    return options


def _level(config: Mapping[str, Any]) -> ort.GraphOptimizationLevel:
    level = config.get("optimization", {}).get("graph", {}).get("level", 0)
    if level == _OFF:
        return ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _LEVELS.get(level, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


def _given(config: Mapping[str, Any], name: str) -> str | None:
    parameter = config.get("parameters", {}).get(name)
    return None if parameter is None else str(parameter.get("string_value", ""))


def _number(config: Mapping[str, Any], name: str, default: int) -> int:
    text = _given(config, name)
    if text is None:
        return default
    try:
        return int({"true": "1", "false": "0"}.get(text.lower(), text))
    except ValueError:
        raise StartFailed(f"parameter '{name}' is {text!r}; it must be a whole number") from None
