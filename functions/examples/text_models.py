"""The two PP-OCR networks of ``read_text``, out of the rapidocr package."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STEPS = "Reshape_470_o0__d2"
"""What the recogniser's graph calls its number of feature columns."""


def detector(packages: Path, bundle: Path) -> None:
    """The detector as it is shipped."""
    shutil.copyfile(packages / "rapidocr/models/PP-OCRv6_det_small.onnx", bundle / "1/model.onnx")


def recogniser(packages: Path, bundle: Path) -> None:
    """The recogniser with its dictionary built in.

    As shipped it answers 18,710 probabilities a column, 75 KB each, of which a caller wants the largest one. Three more nodes
    answer that one's character and probability: a line of text becomes some hundred bytes, and nobody else needs the dictionary.
    """
    model = onnx.load(packages / "rapidocr/models/PP-OCRv6_rec_small.onnx")
    graph = model.graph
    (columns,) = (output.name for output in graph.output)
    graph.initializer.append(numpy_helper.from_array(dictionary(model), "dictionary"))
    graph.node.extend(
        [
            helper.make_node("ArgMax", [columns], ["index"], axis=2, keepdims=0),
            helper.make_node("Gather", ["dictionary", "index"], ["character"]),
            helper.make_node("ReduceMax", [columns], ["probability"], axes=[2], keepdims=0),
        ]
    )
    batch = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    del graph.output[:]
    graph.output.extend(
        [
            helper.make_tensor_value_info("character", TensorProto.STRING, [batch, STEPS]),
            helper.make_tensor_value_info("probability", TensorProto.FLOAT, [batch, STEPS]),
        ]
    )
    onnx.checker.check_model(model)
    onnx.save(model, bundle / "1/model.onnx")


def dictionary(model: onnx.ModelProto) -> np.ndarray:
    """Class → character: CTC's blank (here "") first, then the characters in the model's metadata, a space last."""
    (characters,) = (entry.value for entry in model.metadata_props if entry.key == "character")
    return np.array(["", *characters.split("\n"), " "], dtype=object)
