import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.errors import ModelFailed
from functions.protocol.values import Request
from workers.backends.joining import join, split


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_what_was_joined_comes_apart_again(sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    requests = [Request({"x": rng.random((size, 3))}, ("y",)) for size in sizes]

    inputs, rows = join(requests)
    responses = split("m", {"y": inputs["x"] * 2}, rows, {"y": "FP64"})

    assert sizes == rows
    for request, response in zip(requests, responses, strict=True):
        assert (request.inputs["x"] * 2).tolist() == response.outputs["y"].tolist()
        assert {"y": "FP64"} == response.dtypes


@pytest.mark.parametrize("output", [np.zeros(()), np.zeros((3, 2))])
def test_an_output_without_the_rows_of_the_batch_is_refused(output: np.ndarray) -> None:
    with pytest.raises(ModelFailed, match="its first dimension must be the batch"):
        split("m", {"y": output}, [1, 1], {"y": "FP64"})
