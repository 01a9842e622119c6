from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from functions.errors import ModelFailed, ModelNotFound, tree
from functions.python_api.errors import Code, TritonError, TritonModelException, failure
from functions.python_api.response import InferenceResponse, answer, check_returned
from functions.python_api.tensor import Tensor

T = Tensor("O", np.array([1, 2], np.int32))


def test_a_response_shows_what_it_was_made_of() -> None:
    response = InferenceResponse(output_tensors=[T], parameters={"a": 1})

    assert ([T], False, None, {"a": 1}) == (
        response.output_tensors(),
        response.has_error(),
        response.error(),
        json.loads(response.parameters()),
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"output_tensors": [np.zeros(1)]}, TypeError),
        ({"output_tensors": [], "error": "boom"}, TypeError),
        ({"output_tensors": [], "parameters": {"a": 1.5}}, TritonModelException),
    ],
)
def test_a_response_of_other_things_is_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        InferenceResponse(**arguments)


def test_only_the_outputs_that_were_asked_for_are_answered() -> None:
    made = answer(InferenceResponse([Tensor("X", np.zeros(1)), T], parameters={"a": 1}), ("O",))

    assert (["O"], {"O": "INT32"}, {"a": 1}, None) == (list(made.outputs), made.dtypes, made.parameters, made.error)
    assert made.outputs["O"] is T.as_numpy()


def test_the_error_of_a_response_keeps_its_message_and_meaning() -> None:
    made = answer(InferenceResponse(error=TritonError("no such row", TritonError.NOT_FOUND)), ("O",))

    assert isinstance(made.error, ModelNotFound)
    assert "no such row" == made.error.message


def test_each_code_has_an_error_of_its_own() -> None:
    kinds = {type(failure(TritonError("x", code))) for code in Code}

    assert set(tree(ModelFailed)) == kinds


def test_an_error_is_internal_unless_it_says_otherwise() -> None:
    error = TritonError("x")

    assert (TritonError.INTERNAL, "x", "x") == (error.code(), error.message(), str(error))
    with pytest.raises(ValueError, match="99"):
        TritonError("x", 99)
    with pytest.raises(TypeError, match="message must be a str"):
        TritonError(ValueError("x"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ((InferenceResponse(),), "Expected a list in the execute return, found type '<class 'tuple'>'."),
        (None, "Expected a list in the execute return, found type '<class 'NoneType'>'."),
        (["a"], "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'."),
        ([None], "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'NoneType'>'."),
        (
            [],
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) size is:1, and "
            "InferenceResponse(s) size is:0\n",
        ),
    ],
)
def test_execute_must_return_one_response_a_request(returned: Any, text: str) -> None:
    with pytest.raises(TritonModelException) as caught:
        check_returned(returned, 1)

    assert text == str(caught.value)


def test_what_execute_returned_is_passed_on() -> None:
    returned = [InferenceResponse()]

    assert check_returned(returned, 1) is returned
