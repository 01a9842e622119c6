"""ONNX models of one or two nodes, as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper


def model(nodes: Sequence[object], inputs: Sequence[object], outputs: Sequence[object], initializers: Sequence[object] = ()) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    made: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


def value(name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> object:
    return helper.make_tensor_value_info(name, kind, shape)


def identity_model(kind: int = TensorProto.FLOAT, shape: Sequence[int | str] = ("n", 16)) -> bytes:
    return model([helper.make_node("Identity", ["IN"], ["OUT"])], [value("IN", shape, kind)], [value("OUT", shape, kind)])


def sum_model(shape: Sequence[int | str] = ("n", 2), *, default: float | None = None) -> bytes:
    """OUT = A + B; with ``default`` B is an initializer too, so that a caller may leave it out."""
    initializers = [] if default is None else [numpy_helper.from_array(np.array([default], np.float32), "B")]
    inputs = [value("A", shape), value("B", shape if default is None else (1,))]
    return model([helper.make_node("Add", ["A", "B"], ["OUT"])], inputs, [value("OUT", shape)], initializers)
