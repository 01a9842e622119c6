import numpy as np
import pytest

from functions.config.spec import ModelConfig
from functions.protocol.values import Request
from tests.workers.process.bundles import config
from workers.process.reshape import Reshape

CASES = [
    ("a scalar an item", 8, [1], [], (3, 1), (3,)),
    ("two dims from one", 8, [6], [2, 3], (2, 6), (2, 2, 3)),
    ("a variable size stays", 8, [-1, 1, 2], [-1, 2], (2, 5, 1, 2), (2, 5, 2)),
    ("without a batch dimension", 0, [2, 3], [6], (2, 3), (6,)),
]


@pytest.mark.parametrize(("batch", "dims", "shape", "outer", "inner"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_inputs_and_outputs_are_turned_and_turned_back(
    batch: int, dims: list[int], shape: list[int], outer: tuple[int, ...], inner: tuple[int, ...]
) -> None:
    made = config("m", batch=batch, inputs={"IN": ("TYPE_FP32", dims)}, outputs={"OUT": ("TYPE_FP32", dims)})
    for entry in (*made["input"], *made["output"]):
        entry["reshape"] = {"shape": shape}
    reshape = Reshape.of(ModelConfig.of(made))
    assert reshape is not None

    request = reshape.inputs(Request({"IN": np.zeros(outer)}, ("OUT",)))
    outputs = {"OUT": np.zeros(inner)}
    reshape.outputs(outputs)

    assert inner == request.inputs["IN"].shape
    assert outer == outputs["OUT"].shape


def test_an_output_of_another_shape_than_declared_stays_as_the_model_gave_it() -> None:
    made = config("m", batch=8)
    made["output"][0]["reshape"] = {"shape": [4, 4]}
    reshape = Reshape.of(ModelConfig.of(made))
    assert reshape is not None

    outputs = {"OUT": np.zeros((2, 7))}
    reshape.outputs(outputs)

    assert (2, 7) == outputs["OUT"].shape


def test_a_model_without_reshape_has_none() -> None:
    assert Reshape.of(ModelConfig.of(config("m"))) is None
