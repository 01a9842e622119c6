"""What an ONNX model takes and gives, and how that agrees with a config or completes it: Triton's rules and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnxruntime as ort

from functions.config.spec import ModelConfig, TensorSpec
from functions.errors import BundleRefused, StartFailed
from functions.tensors import config_type, fits

DEFAULT_MAX_BATCH_SIZE = 4
"""For a model that can batch and a config that does not say how far."""
_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}


class Port(NamedTuple):
    """One input or output of the graph. ``datatype`` is "" for what is no tensor of the protocol; -1 in ``shape`` is any size."""

    name: str
    type: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


def inputs_of(session: ort.InferenceSession) -> list[Port]:
    """The inputs; initializers that are inputs too are optional ones."""
    return [_port(node) for node in session.get_inputs()] + [_port(node, optional=True) for node in session.get_overridable_initializers()]


def outputs_of(session: ort.InferenceSession) -> list[Port]:
    return [_port(node) for node in session.get_outputs()]


def check(config: Mapping[str, Any], inputs: Sequence[Port], outputs: Sequence[Port]) -> str | None:
    """Why the model cannot be served with this config; None if it can."""
    spec = ModelConfig.of(config)
    required = [port for port in inputs if not port.optional]
    known = {port.name: port for port in inputs}
    for tensor in spec.inputs:
        if tensor.name not in known:
            return f"unexpected inference input '{tensor.name}', allowed inputs are: {', '.join(known)}"
        if tensor.optional and spec.max_batch_size:
            return f"input '{tensor.name}' of '{spec.name}' is optional, which this backend does not combine with batching"
    if len(required) > len(spec.inputs) or any(port.name not in spec.input_named for port in required):
        return f"unable to load model '{spec.name}', configuration expects {len(spec.inputs)} inputs, model provides {len(required)}"
    known_outputs = {port.name: port for port in outputs}
    for tensor in spec.outputs:
        if tensor.name not in known_outputs:
            return f"unexpected inference output '{tensor.name}', allowed outputs are: {', '.join(known_outputs)}"
    for kind, tensors, ports in (("input", spec.inputs, known), ("output", spec.outputs, known_outputs)):
        for tensor in tensors:
            problem = _compare(spec, kind, tensor, ports[tensor.name])
            if problem is not None:
                return problem
    return None


def complete(config: dict[str, Any], path: Path, open_session: Callable[[Path], ort.InferenceSession]) -> dict[str, Any]:
    """``config`` with a missing side of inputs or outputs filled in, and batching where that says nothing and the model can.
    Raises BundleRefused for a file that is no model, and where both disagree."""
    field = f"{path.parent.name}/{path.name}"
    if not path.is_file():
        raise BundleRefused(f"{path.name} does not exist", field=field, fix="add it, or name another file in default_model_filename")
    try:
        session = open_session(path)
    except StartFailed as error:
        raise BundleRefused(error.message, field="config.pbtxt") from error
    except Exception as error:
        # onnxruntime raises a dozen types of its own, which have no base but Exception.
        raise BundleRefused(
            f"onnxruntime cannot read it: {error}", field=field, fix="it must be an ONNX model this onnxruntime loads"
        ) from error
    inputs, outputs = inputs_of(session), outputs_of(session)
    if not config.get("input") or not config.get("output"):
        config = _filled(config, inputs, outputs, field)
    problem = check(config, inputs, outputs)
    if problem is not None:
        raise BundleRefused(problem, field="config.pbtxt", fix=f"make it agree with {field}, or leave input and output out of it")
    return config


def _port(node: Any, *, optional: bool = False) -> Port:
    shape = tuple(size if isinstance(size, int) and size >= 0 else -1 for size in node.shape or ())
    return Port(node.name, node.type, _DATATYPES.get(node.type, ""), shape, optional)


def _compare(spec: ModelConfig, kind: str, tensor: TensorSpec, port: Port) -> str | None:
    name = spec.name
    if not port.datatype:
        return f"model '{name}', {kind} '{port.name}' is a {port.type}, which has no data type in the protocol"
    if tensor.datatype != port.datatype:
        return (
            f"unable to load model '{name}', configuration expects datatype {config_type(tensor.datatype)} for {kind} '{tensor.name}', "
            f"model provides {config_type(port.datatype)}"
        )
    if spec.max_batch_size and (not port.shape or port.shape[0] != -1):
        return (
            f"model '{name}', tensor '{tensor.name}': for the model to support batching the shape should have at least 1 dimension and "
            f"the first dimension must be -1; but shape expected by the model is {_shape(port.shape)}"
        )
    expected = tensor.model_shape
    if port.shape == () and expected == (1,):
        return None
    if not fits(port.shape, expected):
        batch = (
            " (an initial batch dimension because max_batch_size > 0, plus the explicit tensor dimensions)" if spec.max_batch_size else ""
        )
        return (
            f"model '{name}', tensor '{tensor.name}': the model expects {len(port.shape)} dimensions (shape {_shape(port.shape)}) but the "
            f"model configuration specifies {len(expected)} dimensions{batch} (shape {_shape(expected)})"
        )
    return None


def _filled(config: dict[str, Any], inputs: Sequence[Port], outputs: Sequence[Port], field: str) -> dict[str, Any]:
    name = config.get("name", "")
    for port in (*inputs, *outputs):
        if not port.datatype:
            raise BundleRefused(
                f"{port.name!r} is a {port.type}, which has no data type in the protocol",
                field=field,
                fix="list the inputs and outputs to serve in config.pbtxt, or export the model without it (skl2onnx: zipmap=False)",
            )
    largest = config.get("max_batch_size", 0)
    batches = all(port.shape and port.shape[0] == -1 for port in (*inputs, *outputs))
    if largest and not batches:
        raise BundleRefused(
            f"autofill failed for model '{name}': model does not support batching while non-zero max_batch_size is specified",
            field="config.pbtxt: max_batch_size",
            fix="set it to 0, or export the model with a first dimension of variable size on every input and output",
        )
    if batches and not largest:
        largest = DEFAULT_MAX_BATCH_SIZE
    filled = {**config, "max_batch_size": largest}
    if largest > 1 and not any(key in config for key in ("dynamic_batching", "sequence_batching", "ensemble_scheduling")):
        filled["dynamic_batching"] = {}
    for side, ports in (("input", inputs), ("output", outputs)):
        if not config.get(side):
            filled[side] = [_entry(port, batched=largest > 0) for port in ports if not (port.optional and largest)]
    return filled


def _entry(port: Port, *, batched: bool) -> dict[str, Any]:
    dims = list(port.shape[1:] if batched else port.shape)
    entry: dict[str, Any] = {"name": port.name, "data_type": config_type(port.datatype), "dims": dims or [1]}
    if not dims and batched:
        entry["reshape"] = {"shape": []}
    if port.optional:
        entry["optional"] = True
    return entry


def _shape(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
