"""The view of a normalised configuration that replicas use."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from functions.config import checks, text
from functions.config.spec import InstanceGroup, ModelConfig, TensorSpec, Warmup, WarmupInput

SOURCE = """
backend: "python" max_batch_size: 8
input [
  { name: "X" data_type: TYPE_FP32 dims: [4] },
  { name: "S" data_type: TYPE_STRING dims: [-1, 2] optional: true },
  { name: "R" data_type: TYPE_BF16 dims: [4] reshape { shape: [2, 2] } },
  { name: "N" data_type: TYPE_INT8 dims: [1] reshape { shape: [] } }
]
output { name: "Y" data_type: TYPE_BOOL dims: [10] label_filename: "labels.txt" }
dynamic_batching { preferred_batch_size: [8, 4, 4] max_queue_delay_microseconds: 500 preserve_ordering: true }
instance_group [ { count: 2 }, { kind: KIND_MODEL count: 3 name: "g" } ]
parameters { key: "k" value { string_value: "v" } }
metric_tags { key: "team" value: "t" }
model_warmup {
  name: "w" batch_size: 2
  inputs { key: "X" value { data_type: TYPE_FP32 dims: [4] zero_data: false } }
  inputs { key: "R" value { data_type: TYPE_BF16 dims: [4] random_data: true } }
  inputs { key: "N" value { data_type: TYPE_INT8 dims: [1] input_data_file: "n.raw" } }
}
"""


def view(source: str = SOURCE) -> ModelConfig:
    return ModelConfig.of(checks.normalise(text.parse(source), "f", []))


def test_tensors_have_shapes_for_clients_and_for_the_model() -> None:
    config = view()

    assert config.inputs == (
        TensorSpec("X", "FP32", (4,), (-1, 4), (-1, 4)),
        TensorSpec("S", "BYTES", (-1, 2), (-1, -1, 2), (-1, -1, 2), optional=True),
        TensorSpec("R", "BF16", (4,), (-1, 4), (-1, 2, 2), reshape=(2, 2)),
        TensorSpec("N", "INT8", (1,), (-1, 1), (-1,), reshape=()),
    )
    assert config.outputs == (TensorSpec("Y", "BOOL", (10,), (-1, 10), (-1, 10), label_filename="labels.txt"),)
    assert config.input_named["R"] is config.inputs[2]
    assert config.output_named["Y"] is config.outputs[0]


def test_without_batching_shapes_have_no_batch_dimension() -> None:
    config = view('backend: "python" input { name: "X" data_type: TYPE_FP32 dims: [4, -1] }')

    assert config.inputs[0].full_shape == config.inputs[0].model_shape == (4, -1)


def test_the_rest_is_there_by_name() -> None:
    config = view()
    batching = config.dynamic_batching

    assert (config.name, config.backend, config.platform, config.max_batch_size) == ("f", "python", "", 8)
    assert batching is not None
    assert (batching.preferred, batching.delay_us, batching.preserve_ordering) == ((4, 8), 500, True)
    assert config.instance_groups == (InstanceGroup("f_0", "KIND_CPU", 2), InstanceGroup("g", "KIND_MODEL", 3))
    assert config.instances == 5
    assert config.parameters == {"k": "v"}
    assert config.metric_tags == {"team": "t"}
    assert config.default_model_filename == "model.py"
    assert not config.ensemble
    assert config.steps == ()
    assert config.optimization["eager_batching"] is False
    assert config.warmups == (
        Warmup(
            "w",
            2,
            1,
            (
                WarmupInput("N", "INT8", (1,), "file", "n.raw"),
                WarmupInput("R", "BF16", (4,), "random"),
                WarmupInput("X", "FP32", (4,), "zero"),
            ),
        ),
    )


def test_an_ensemble_has_steps() -> None:
    config = view(
        """
        platform: "ensemble"
        input { name: "X" data_type: TYPE_FP32 dims: [4] } output { name: "Y" data_type: TYPE_FP32 dims: [4] }
        ensemble_scheduling { step [
          { model_name: "a" model_version: 3 input_map { key: "I" value: "X" } output_map { key: "O" value: "t" } },
          { model_name: "b" input_map { key: "I" value: "t" } output_map { key: "O" value: "Y" } }
        ] }
        """
    )

    assert config.ensemble
    assert config.dynamic_batching is None
    assert config.instances == 1
    assert [(step.model_name, step.model_version, dict(step.input_map), dict(step.output_map)) for step in config.steps] == [
        ("a", 3, {"I": "X"}, {"O": "t"}),
        ("b", 0, {"I": "t"}, {"O": "Y"}),
    ]


def test_what_is_missing_has_tritons_default() -> None:
    config = ModelConfig.of({})

    assert config.max_batch_size == 0
    assert config.inputs == ()
    assert config.instances == 1


@pytest.mark.parametrize("value", [view(), view().inputs[0], view().warmups[0], view().instance_groups[0]])
def test_views_are_frozen(value: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.name = "other"


def test_the_view_needs_only_the_standard_library_and_numpy() -> None:
    """A replica runs in the author's environment, where nothing else may be installed."""
    script = (
        "import sys, functions.config.spec, functions.tensors, functions.calls\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('google', 'pydantic', 'fastapi', 'registry', 'workers')])"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert found.stdout.strip() == "[]"
