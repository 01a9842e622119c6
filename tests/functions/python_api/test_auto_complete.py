from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from functions.python_api.auto_complete import ModelConfig

FP32 = {"name": "I", "data_type": "TYPE_FP32", "dims": [4]}


def config(**members: Any) -> ModelConfig:
    return ModelConfig({"name": "m", **members})


def test_a_blank_configuration_is_filled() -> None:
    made = config()
    made.set_max_batch_size(4)
    made.set_dynamic_batching()
    made.add_input({**FP32, "optional": True})
    made.add_output({**FP32, "name": "O"})
    made.set_model_transaction_policy({"decoupled": False})

    assert {
        "name": "m",
        "max_batch_size": 4,
        "dynamic_batching": {},
        "input": [{**FP32, "optional": True}],
        "output": [{**FP32, "name": "O"}],
        "model_transaction_policy": {"decoupled": False},
    } == made.as_dict()


def test_what_the_author_left_blank_is_completed_and_the_rest_kept() -> None:
    made = config(max_batch_size=4, input=[{"name": "I", "data_type": "TYPE_INVALID", "dims": []}, {"name": "other"}])
    made.add_input(FP32)
    made.set_max_batch_size(8)

    assert ([FP32, {"name": "other"}], 8) == (made.as_dict()["input"], made.as_dict()["max_batch_size"])


def test_dims_agree_whether_written_as_numbers_or_as_text() -> None:
    made = config(input=[{"name": "I", "data_type": "TYPE_FP32", "dims": ["4"]}])
    made.add_input(FP32)

    assert [4] == made.as_dict()["input"][0]["dims"]


def test_the_given_dictionary_is_not_touched() -> None:
    given: dict[str, Any] = {"name": "m", "input": []}
    ModelConfig(given).add_input(FP32)

    assert {"name": "m", "input": []} == given


IN = "in auto-complete-config function for model 'm'"


@pytest.mark.parametrize(
    ("members", "change", "text"),
    [
        (
            {"max_batch_size": 8},
            lambda made: made.set_max_batch_size(4),
            f"configuration specified max_batch_size 8, but {IN} specified max_batch_size 4",
        ),
        (
            {"sequence_batching": {}},
            lambda made: made.set_dynamic_batching(),
            "Configuration specified scheduling_choice as 'sequence_batching', but auto-complete-config function for model 'm' tries to "
            "set scheduling_choice as 'dynamic_batching'",
        ),
        ({}, lambda made: made.add_input({"name": "A", "data_type": "TYPE_FP32"}), f"input 'A' {IN} is missing 'dims' property."),
        ({}, lambda made: made.add_input({}), f"input {IN} is missing 'name' property."),
        (
            {},
            lambda made: made.add_input({**FP32, "x": 1}),
            f"input 'I' {IN} contains property other than 'name', 'data_type', 'dims' and 'optional'.",
        ),
        (
            {},
            lambda made: made.add_output({**FP32, "optional": True}),
            f"output 'I' {IN} contains property other than 'name', 'data_type' and 'dims'.",
        ),
        (
            {"input": [{**FP32, "data_type": "TYPE_INT32"}]},
            lambda made: made.add_input(FP32),
            "unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'I', model provides TYPE_FP32",
        ),
        (
            {"input": [{**FP32, "dims": [5]}]},
            lambda made: made.add_input(FP32),
            "model 'm', tensor 'I': the model expects dims [4] but the model configuration specifies dims [5]",
        ),
        (
            {"input": [{**FP32, "optional": True}]},
            lambda made: made.add_input({**FP32, "optional": False}),
            "model 'm', tensor 'I': the model expects optional False but the model configuration specifies optional True",
        ),
        (
            {},
            lambda made: made.set_model_transaction_policy({"x": 1}),
            f"model transaction property {IN} contains property other than 'decoupled'.",
        ),
        (
            {"model_transaction_policy": {"decoupled": False}},
            lambda made: made.set_model_transaction_policy({"decoupled": True}),
            "trying to change decoupled property in auto-complete-config for model 'm', which is already set to 'False'.",
        ),
    ],
)
def test_a_contradiction_is_told_in_tritons_words(members: dict[str, Any], change: Callable[[ModelConfig], None], text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared below
        change(config(**members))

    assert text == str(caught.value)
