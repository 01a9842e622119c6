from __future__ import annotations

import numpy as np
import pytest

from functions.protocol.values import Request
from functions.python_api import dtypes
from functions.python_api.errors import TritonModelException
from functions.python_api.request import InferenceRequest, incoming
from functions.python_api.response import InferenceResponse
from functions.python_api.tensor import Tensor

CONFIG = {"input": [{"name": "I", "dims": [1]}], "output": [{"name": "O", "dims": [2]}]}


@pytest.mark.parametrize(
    ("number", "name", "kind"), [(1, "TYPE_BOOL", bool), (11, "TYPE_FP32", np.float32), (13, "TYPE_STRING", np.object_)]
)
def test_names_numbers_and_numpy_types_agree(number: int, name: str, kind: type) -> None:
    assert kind == dtypes.triton_to_numpy_type(number)
    assert kind == dtypes.triton_string_to_numpy(name)
    assert number == dtypes.numpy_to_triton_type(kind)
    assert number == dtypes.numpy_to_triton_type(np.dtype(kind))


def test_bf16_has_no_numpy_type() -> None:
    with pytest.raises(KeyError):
        dtypes.triton_string_to_numpy("TYPE_BF16")
    with pytest.raises(KeyError):
        dtypes.triton_to_numpy_type(14)
    with pytest.raises(KeyError):
        dtypes.numpy_to_triton_type(np.complex64)


def test_fixed_length_strings_are_strings() -> None:
    assert 13 == dtypes.numpy_to_triton_type(np.dtype("S5"))


def test_strings_go_out_and_come_back() -> None:
    encoded = dtypes.serialize_byte_tensor(np.array([["é", b""], [b"\xff", "c"]], object))

    assert isinstance(encoded, bytes)
    assert ["é".encode(), b"", b"\xff", b"c"] == dtypes.deserialize_bytes_tensor(encoded).tolist()


def test_an_empty_tensor_and_one_without_strings_answer_as_in_triton() -> None:
    assert () == dtypes.serialize_byte_tensor(np.array([], object))
    assert dtypes.serialize_byte_tensor(np.zeros(1)) is None
    assert [] == dtypes.deserialize_bytes_tensor(b"").tolist()


@pytest.mark.parametrize("broken", [b"\x05\0\0\0ab", b"\x00\0\0\0ab"])
def test_strings_that_do_not_add_up_are_refused(broken: bytes) -> None:
    with pytest.raises(TritonModelException, match="BYTES"):
        dtypes.deserialize_bytes_tensor(broken)


def test_tensors_and_their_configuration_are_found_by_name() -> None:
    request = incoming(InferenceRequest, Request({"I": np.zeros(1)}, ("O",), dtypes={"I": "FP64"}), "m", 1)
    tensor = Tensor("O", np.zeros(1))

    assert request.inputs()[0] is dtypes.get_input_tensor_by_name(request, "I")
    assert dtypes.get_input_tensor_by_name(request, "X") is None
    assert tensor is dtypes.get_output_tensor_by_name(InferenceResponse([tensor]), "O")
    assert dtypes.get_output_tensor_by_name(InferenceResponse([tensor]), "X") is None
    assert CONFIG["input"][0] == dtypes.get_input_config_by_name(CONFIG, "I")
    assert CONFIG["output"][0] == dtypes.get_output_config_by_name(CONFIG, "O")
    assert dtypes.get_output_config_by_name(CONFIG, "X") is None


@pytest.mark.parametrize(("config", "expected"), [({}, False), ({"model_transaction_policy": {"decoupled": True}}, True)])
def test_the_transaction_policy_is_read(config: dict[str, object], expected: bool) -> None:
    assert expected == dtypes.using_decoupled_model_transaction_policy(config)
