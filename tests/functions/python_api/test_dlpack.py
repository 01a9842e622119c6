"""The traps of DLPack, each of which was seen to abort a process or to write where nothing may be written."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from functions.python_api import dlpack
from functions.python_api.errors import TritonModelException
from functions.python_api.tensor import Tensor, unwrap, wrap

NUMBERS = ["bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]


class Exporter:
    """What torch looks like from here: before DLPack 1.0, on some device."""

    def __init__(self, tensor: Any, device: tuple[int, int] = dlpack.CPU) -> None:
        self._tensor, self._device = tensor, device

    def __dlpack__(self) -> Any:
        return self._tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (1, 1)])
def test_arrays_come_in_without_a_copy(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    tensor = Tensor.from_dlpack("T", array)
    taken = tensor.as_numpy()

    assert (array.dtype, array.shape) == (taken.dtype, taken.shape)
    np.testing.assert_array_equal(array, taken)
    assert array.size == 0 or np.shares_memory(array, taken)
    assert taken.flags.writeable


@pytest.mark.parametrize("dtype", NUMBERS)
def test_tensors_go_out_without_a_copy(dtype: str) -> None:
    array = np.ones((2, 3), dtype)
    given = np.from_dlpack(Tensor("T", array))

    assert np.shares_memory(array, given)
    np.testing.assert_array_equal(array, given)


def test_a_negative_stride_never_leaves() -> None:
    given = np.from_dlpack(Tensor("T", np.arange(4)[::-1]))

    assert given.flags.c_contiguous
    assert [3, 2, 1, 0] == given.tolist()


def test_a_read_only_array_leaves_as_a_copy() -> None:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    given, _ = dlpack.take(Tensor("T", array).to_dlpack())
    given[:] = 1

    assert [0, 0, 0] == array.tolist()


def test_a_read_only_array_comes_in_as_a_copy() -> None:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    taken = Tensor.from_dlpack("T", array).as_numpy()
    taken[:] = 1

    assert [0, 0, 0] == array.tolist()


def test_bf16_goes_out_and_comes_in() -> None:
    bits = np.array([[0x3F80, 0x4000]], np.uint16)
    tensor = wrap("T", bits, "BF16")
    array, datatype = unwrap(Tensor.from_dlpack("U", tensor.to_dlpack()))

    assert ("BF16", [[0x3F80, 0x4000]]) == (datatype, array.tolist())
    assert np.shares_memory(bits, array)


@pytest.mark.parametrize("shape", [(), (0,), (3,)])
def test_bf16_of_any_shape(shape: tuple[int, ...]) -> None:
    taken = Tensor.from_dlpack("U", wrap("T", np.zeros(shape, np.uint16), "BF16"))

    assert (list(shape), 14) == (taken.shape(), taken.triton_dtype())


def test_memory_is_given_back_when_the_last_array_over_it_goes() -> None:
    dlpack._given.clear()
    tensor = Tensor.from_dlpack("U", wrap("T", np.zeros(4, np.uint16), "BF16"))
    view = unwrap(tensor)[0][1:]
    del tensor
    gc.collect()

    assert 1 == len(dlpack._given)
    del view
    gc.collect()
    assert 0 == len(dlpack._given)


def test_a_capsule_that_nobody_takes_gives_its_memory_back() -> None:
    dlpack._given.clear()
    capsule = wrap("T", np.zeros(4, np.uint16), "BF16").to_dlpack()

    assert 1 == len(dlpack._given)
    del capsule
    gc.collect()
    assert 0 == len(dlpack._given)


class Owner(np.ndarray):
    """An array that can be watched."""


def test_the_exporters_memory_lives_as_long_as_the_tensor() -> None:
    array = np.zeros(4, np.float32).view(Owner)
    watch = weakref.ref(array)
    tensor = Tensor.from_dlpack("T", array)
    del array
    gc.collect()

    assert watch() is not None
    del tensor
    gc.collect()
    assert watch() is None


def test_a_bare_capsule_is_taken_once() -> None:
    capsule = np.zeros(2).__dlpack__()
    Tensor.from_dlpack("T", capsule)

    with pytest.raises(TritonModelException, match="used before"):
        Tensor.from_dlpack("T", capsule)


def test_an_exporter_from_before_dlpack_1_is_understood() -> None:
    array = np.arange(3)

    np.testing.assert_array_equal(array, Tensor.from_dlpack("T", Exporter(array)).as_numpy())


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (np.arange(4)[::2], "DLPack tensor is not contiguous"),
        (np.arange(4)[::-1], "DLPack tensor is not contiguous"),
        (np.zeros((2, 3)).T, "DLPack tensor is not contiguous"),
        (Exporter(np.zeros(1), (2, 0)), r"device \(2, 0\); this release holds tensors in CPU memory"),
        (np.zeros(1, np.complex64), "code 5, 64 bits, 1 lanes is not supported"),
        ([1], "Provided tensor is not supported"),
        (None, "Provided tensor is not supported"),
    ],
)
def test_what_cannot_be_taken_is_refused(source: Any, text: str) -> None:
    with pytest.raises(TritonModelException, match=text):
        Tensor.from_dlpack("T", source)


def test_strides_of_single_elements_do_not_matter() -> None:
    assert [1, 3] == Tensor.from_dlpack("T", np.arange(6).reshape(2, 3)[::2]).shape()


def test_strings_have_no_dlpack() -> None:
    with pytest.raises(TritonModelException, match=r"DLPack does not have support for string tensors\."):
        Tensor("T", np.array([b"a"], object)).to_dlpack()


def test_a_tensor_lies_on_the_cpu() -> None:
    assert (1, 0) == Tensor("T", np.zeros(1)).__dlpack_device__()
