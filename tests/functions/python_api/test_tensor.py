from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from functions.python_api.errors import TritonModelException
from functions.python_api.tensor import Tensor, unwrap, wrap


def test_a_tensor_tells_its_name_shape_and_array() -> None:
    array = np.zeros((2, 3), np.float32)
    tensor = Tensor("T", array)

    assert ("T", [2, 3], True, 11) == (tensor.name(), tensor.shape(), tensor.is_cpu(), tensor.triton_dtype())
    assert tensor.as_numpy() is array


@pytest.mark.parametrize(
    ("name", "array", "error", "text"),
    [
        ("", np.zeros(1), TritonModelException, "Tensor name cannot be an empty string."),
        ("T", np.array(["a"]), TritonModelException, "NumPy dtype is not supported."),
        ("T", np.zeros(1, np.complex64), TritonModelException, "NumPy dtype is not supported."),
        ("T", np.zeros(1, "datetime64[s]"), TritonModelException, "NumPy dtype is not supported."),
        ("T", np.float32(1), TypeError, "numpy.ndarray"),
        ("T", [1], TypeError, "numpy.ndarray"),
        (1, np.zeros(1), TypeError, "str"),
    ],
)
def test_what_is_no_tensor_is_refused(name: Any, array: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Tensor(name, array)


@pytest.mark.parametrize("array", [np.arange(6)[::-1], np.arange(6).reshape(2, 3).T, np.asfortranarray(np.zeros((2, 3)))])
def test_arrays_of_another_order_are_copied_to_c_order(array: np.ndarray) -> None:
    tensor = Tensor("T", array)

    assert tensor.as_numpy().flags.c_contiguous
    np.testing.assert_array_equal(array, tensor.as_numpy())


def test_a_scalar_keeps_having_no_dimension() -> None:
    assert [] == Tensor("T", np.array(5)).shape()


def test_big_endian_arrays_become_native() -> None:
    array, datatype = unwrap(Tensor("T", np.array([1, 2], ">i4")))

    assert ("INT32", [1, 2], True) == (datatype, array.tolist(), array.dtype.isnative)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["é", b"\xff", 5], object),
        np.array([[b"a"], [b"b"]], "S1"),
        np.array([], object),
        np.array([b"kept"], object),
    ],
)
def test_the_elements_of_a_string_tensor_leave_as_bytes(array: np.ndarray) -> None:
    unwrapped, datatype = unwrap(Tensor("T", array))

    expected = [each if isinstance(each, bytes) else str(each).encode() for each in array.ravel().tolist()]
    assert ("BYTES", expected, array.shape) == (datatype, unwrapped.ravel().tolist(), unwrapped.shape)


def test_a_string_without_a_utf8_form_is_refused() -> None:
    with pytest.raises(TritonModelException, match="tensor 'T' holds a string without a UTF-8 form"):
        unwrap(Tensor("T", np.array(["\ud800"], object)))


def test_bf16_cannot_become_numpy() -> None:
    with pytest.raises(TritonModelException, match="BF16 and cannot be converted to NumPy"):
        wrap("T", np.zeros(1, np.uint16), "BF16").as_numpy()
