"""The onnxruntime backend alone: tensors in and out, options, and what inspection completes and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from functions.errors import BundleRefused, ModelFailed, StartFailed
from functions.protocol.values import Request
from tests.workers.backends.onnx_models import identity_model, model, sum_model, value
from workers.backends.base import Member
from workers.backends.onnx import OnnxBackend, inspect
from workers.backends.onnx_options import session_options


def tensor(name: str, dims: list[int], kind: str = "TYPE_FP32", **more: Any) -> dict[str, Any]:
    return {"name": name, "data_type": kind, "dims": dims, **more}


def config(**more: Any) -> dict[str, Any]:
    return {"name": "m", "backend": "onnxruntime", "max_batch_size": 0, "input": [], "output": [], **more}


def opened(folder: Path, artifact: bytes, config: dict[str, Any]) -> OnnxBackend:
    place(folder, artifact)
    return OnnxBackend(Member("m", 1, str(folder), str(folder / "1"), config, "m_0"))


def place(folder: Path, artifact: bytes) -> None:
    (folder / "1").mkdir()
    (folder / "1" / "model.onnx").write_bytes(artifact)


def completed(folder: Path, artifact: bytes, **more: Any) -> dict[str, Any]:
    place(folder, artifact)
    return inspect(config(**more), str(folder / "1"))


def refused(folder: Path, artifact: bytes, **more: Any) -> str:
    with pytest.raises(BundleRefused) as caught:
        completed(folder, artifact, **more)
    return caught.value.message


def test_only_the_wanted_outputs_are_computed(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["IN"], ["A"]), helper.make_node("Neg", ["IN"], ["B"])]
    made = model(nodes, [value("IN", ("n", 2))], [value("A", ("n", 2)), value("B", ("n", 2))])
    settings = config(max_batch_size=4, input=[tensor("IN", [2])], output=[tensor("A", [2]), tensor("B", [2])])
    backend = opened(tmp_path, made, settings)

    (answer,) = backend.execute([Request({"IN": np.ones((1, 2), np.float32)}, ("B",))])

    assert {"B": [[-1, -1]]} == {name: array.tolist() for name, array in answer.outputs.items()}


def test_strings_cross_as_text(tmp_path: Path) -> None:
    settings = config(input=[tensor("IN", [-1], "TYPE_STRING")], output=[tensor("OUT", [-1], "TYPE_STRING")])
    backend = opened(tmp_path, identity_model(TensorProto.STRING, ("n",)), settings)
    words = np.array(["é".encode(), b""], dtype=object)

    (answer,) = backend.execute([Request({"IN": words}, ("OUT",))])

    assert [*words] == [*answer.outputs["OUT"]]
    with pytest.raises(ModelFailed, match="not UTF-8"):
        backend.execute([Request({"IN": np.array([b"\xff"], dtype=object)}, ("OUT",))])


def test_a_scalar_is_one_element_outside(tmp_path: Path) -> None:
    backend = opened(tmp_path, identity_model(shape=()), config(input=[tensor("IN", [1])], output=[tensor("OUT", [1])]))

    (answer,) = backend.execute([Request({"IN": np.array([3], np.float32)}, ("OUT",))])

    assert [3] == answer.outputs["OUT"].tolist()


def test_an_initializer_that_is_an_input_may_be_left_out(tmp_path: Path) -> None:
    settings = config(input=[tensor("A", [-1, 2]), tensor("B", [1], optional=True)], output=[tensor("OUT", [-1, 2])])
    backend = opened(tmp_path, sum_model(default=5), settings)
    zeros = np.zeros((1, 2), np.float32)

    (without,) = backend.execute([Request({"A": zeros}, ("OUT",))])
    (given,) = backend.execute([Request({"A": zeros, "B": np.ones(1, np.float32)}, ("OUT",))])

    assert ([[5, 5]], [[1, 1]]) == (without.outputs["OUT"].tolist(), given.outputs["OUT"].tolist())


def test_a_model_may_be_a_directory(tmp_path: Path) -> None:
    folder = tmp_path / "1" / "model.onnx"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(identity_model())

    assert [16] == inspect(config(), str(tmp_path / "1"))["input"][0]["dims"]


def test_a_disagreeing_config_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="configuration expects datatype TYPE_INT32 for input 'IN', model provides TYPE_FP32"):
        opened(tmp_path, identity_model(), config(input=[tensor("IN", [-1, 16], "TYPE_INT32")], output=[tensor("OUT", [-1, 16])]))


def parameters(**values: str) -> dict[str, Any]:
    return {"parameters": {name: {"string_value": text} for name, text in values.items()}}


def test_a_session_has_one_thread_and_does_not_spin_unless_told() -> None:
    options = session_options(config())

    assert (1, 1) == (options.intra_op_num_threads, options.inter_op_num_threads)
    assert "0" == options.get_session_config_entry("session.intra_op.allow_spinning")
    assert ort.GraphOptimizationLevel.ORT_ENABLE_ALL == options.graph_optimization_level


def test_tritons_parameters_are_honoured() -> None:
    told = parameters(
        intra_op_thread_count="3", inter_op_thread_count="2", execution_mode="1", enable_mem_arena="0", enable_mem_pattern="0"
    )
    options = session_options(config(**told))

    assert (3, 2) == (options.intra_op_num_threads, options.inter_op_num_threads)
    assert ort.ExecutionMode.ORT_PARALLEL == options.execution_mode
    assert (False, False) == (options.enable_cpu_mem_arena, options.enable_mem_pattern)


def test_a_parameter_that_is_no_number_is_refused() -> None:
    with pytest.raises(StartFailed, match="parameter 'intra_op_thread_count' is 'many'"):
        session_options(config(**parameters(intra_op_thread_count="many")))


@pytest.mark.parametrize(("level", "expected"), [(-1, "BASIC"), (0, "ALL"), (1, "EXTENDED"), (2, "DISABLE"), (7, "ALL")])
def test_the_optimisation_level_is_tritons(level: int, expected: str) -> None:
    options = session_options(config(optimization={"graph": {"level": level}}))

    assert expected in str(options.graph_optimization_level)


def test_a_config_without_tensors_is_completed_with_batching_where_the_model_can(tmp_path: Path) -> None:
    made = completed(tmp_path, identity_model())

    assert (4, {}) == (made["max_batch_size"], made["dynamic_batching"])
    assert [tensor("IN", [16])] == made["input"]
    assert [tensor("OUT", [16])] == made["output"]


def test_a_model_with_a_fixed_first_dimension_is_completed_without_batching(tmp_path: Path) -> None:
    made = completed(tmp_path, identity_model(shape=(1, 3)))

    assert (0, False, [1, 3]) == (made["max_batch_size"], "dynamic_batching" in made, made["input"][0]["dims"])


def test_an_item_without_dimensions_is_completed_with_a_reshape(tmp_path: Path) -> None:
    made = completed(tmp_path, identity_model(shape=("n",)))

    assert [tensor("IN", [1], reshape={"shape": []})] == made["input"]


def test_what_the_config_says_about_batching_is_kept(tmp_path: Path) -> None:
    made = completed(tmp_path, identity_model(), max_batch_size=32, dynamic_batching={"max_queue_delay_microseconds": 5})

    assert (32, {"max_queue_delay_microseconds": 5}) == (made["max_batch_size"], made["dynamic_batching"])


def test_a_complete_config_is_not_touched(tmp_path: Path) -> None:
    settings = {"input": [tensor("IN", [-1, 16])], "output": [tensor("OUT", [-1, 16])]}

    assert config(**settings) == completed(tmp_path, identity_model(), **settings)


@pytest.mark.parametrize(
    ("artifact", "settings", "expected"),
    [
        (identity_model(shape=(1, 3)), {"max_batch_size": 4}, "model does not support batching while non-zero max_batch_size is specified"),
        (
            sum_model(),
            {"input": [tensor("A", [-1, 2])], "output": [tensor("OUT", [-1, 2])]},
            "configuration expects 1 inputs, model provides 2",
        ),
        (
            identity_model(),
            {"input": [tensor("Q", [-1, 16])], "output": [tensor("OUT", [-1, 16])]},
            "unexpected inference input 'Q', allowed inputs are: IN",
        ),
        (identity_model(), {"output": [tensor("Q", [-1, 16])]}, "unexpected inference output 'Q', allowed outputs are: OUT"),
        (
            identity_model(shape=("n", 4)),
            {"input": [tensor("IN", [4])], "output": [tensor("OUT", [-1, 4])]},
            "tensor 'IN': the model expects 2 dimensions (shape [-1,4]) but the model configuration specifies 1 dimensions (shape [4])",
        ),
        (
            identity_model(shape=("n", 4)),
            {"max_batch_size": 2, "input": [tensor("IN", [5])], "output": [tensor("OUT", [4])]},
            "the model expects 2 dimensions (shape [-1,4]) but the model configuration specifies 2 dimensions (an initial batch dimension",
        ),
        (
            identity_model(shape=(1, 4)),
            {"max_batch_size": 2, "input": [tensor("IN", [4])], "output": [tensor("OUT", [4])]},
            "the first dimension must be -1; but shape expected by the model is [1,4]",
        ),
        (
            sum_model(default=1),
            {
                "max_batch_size": 2,
                "input": [tensor("A", [2]), tensor("B", [1], optional=True)],
                "output": [tensor("OUT", [2])],
            },
            "is optional, which this backend does not combine with batching",
        ),
    ],
)
def test_a_file_and_a_config_that_disagree_are_refused(tmp_path: Path, artifact: bytes, settings: dict[str, Any], expected: str) -> None:
    assert expected in refused(tmp_path, artifact, **settings)


def test_an_output_that_is_no_tensor_is_refused_with_a_way_out(tmp_path: Path) -> None:
    nodes = [helper.make_node("SequenceConstruct", ["IN"], ["OUT"])]
    made = model(nodes, [value("IN", ("n", 2))], [helper.make_tensor_sequence_value_info("OUT", TensorProto.FLOAT, None)])

    assert "zipmap=False" in refused(tmp_path, made)
