"""The models behind the texts: the configurations of the contract's fixture models, and bodies for them."""

from __future__ import annotations

import json
from typing import Any

from functions.config.spec import ModelConfig
from functions.tensors import DTYPES


def tensor(name: str, datatype: str, dims: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": DTYPES[datatype].config, "dims": dims, **more}


def model(name: str, batch: int, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> ModelConfig:
    return ModelConfig.of({"name": name, "backend": "python", "max_batch_size": batch, "input": inputs, "output": outputs})


IDF = model("idf", 8, [tensor("INPUT0", "FP32", [4])], [tensor("OUTPUT0", "FP32", [4])])
NOB = model("nob", 0, [tensor("INPUT0", "FP32", [-1, 2])], [tensor("OUTPUT0", "FP32", [-1, 2])])
FIXED = model("fixed", 0, [tensor("INPUT0", "FP32", [4])], [tensor("OUTPUT0", "FP32", [4])])
OPT = model(
    "opt",
    4,
    [tensor("A", "INT32", [1]), tensor("B", "INT32", [1], optional=True)],
    [tensor("O", "INT32", [1]), tensor("P", "INT32", [1])],
)
TYPES = model(
    "types",
    0,
    [tensor(f"I_{name}", name, [-1], optional=True) for name in DTYPES],
    [tensor(f"O_{name}", name, [-1]) for name in DTYPES],
)
TEXT = model("m", 0, [tensor("I", "BYTES", [-1])], [tensor("O", "BYTES", [-1])])
LAB = model(
    "lab",
    8,
    [tensor("INPUT0", "FP32", [4])],
    [tensor("OUTPUT0", "FP32", [4], label_filename="labels.txt"), tensor("OUT1", "BYTES", [4]), tensor("OUT2", "INT32", [4])],
)


def json_body(**members: Any) -> memoryview:
    return memoryview(json.dumps(members).encode())


def binary_body(binary: bytes, **members: Any) -> tuple[memoryview, int]:
    """A body and its header length."""
    header = json.dumps(members, separators=(",", ":")).encode()
    return memoryview(header + binary), len(header)


def fp32(name: str = "INPUT0", shape: tuple[int, ...] = (1, 4), **more: Any) -> dict[str, Any]:
    """An input head without data."""
    return {"name": name, "shape": list(shape), "datatype": "FP32", **more}
