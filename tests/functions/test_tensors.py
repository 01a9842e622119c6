"""The table of data types, and the byte form of BYTES tensors."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions import tensors
from functions.errors import InvalidRequest

TABLE = [
    ("BOOL", "TYPE_BOOL", np.bool_, 1),
    ("UINT8", "TYPE_UINT8", np.uint8, 1),
    ("UINT16", "TYPE_UINT16", np.uint16, 2),
    ("UINT32", "TYPE_UINT32", np.uint32, 4),
    ("UINT64", "TYPE_UINT64", np.uint64, 8),
    ("INT8", "TYPE_INT8", np.int8, 1),
    ("INT16", "TYPE_INT16", np.int16, 2),
    ("INT32", "TYPE_INT32", np.int32, 4),
    ("INT64", "TYPE_INT64", np.int64, 8),
    ("FP16", "TYPE_FP16", np.float16, 2),
    ("FP32", "TYPE_FP32", np.float32, 4),
    ("FP64", "TYPE_FP64", np.float64, 8),
    ("BYTES", "TYPE_STRING", np.object_, 0),
    ("BF16", "TYPE_BF16", np.uint16, 2),
]


@pytest.mark.parametrize(("protocol", "config", "kind", "size"), TABLE)
def test_a_data_type_has_a_protocol_name_a_config_name_a_numpy_type_and_a_size(protocol: str, config: str, kind: type, size: int) -> None:
    assert np.dtype(kind) == tensors.numpy_dtype(protocol)
    assert size == tensors.itemsize(protocol)
    assert config == tensors.config_type(protocol)
    assert protocol == tensors.config_dtype(config)


@pytest.mark.parametrize(("protocol", "kind"), [(row[0], row[2]) for row in TABLE if row[0] != "BF16"])
def test_a_numpy_type_has_a_protocol_name_in_either_byte_order(protocol: str, kind: type) -> None:
    assert protocol == tensors.protocol_dtype(np.dtype(kind))
    assert protocol == tensors.protocol_dtype(np.dtype(kind).newbyteorder(">"))


def test_uint16_is_never_taken_for_bf16() -> None:
    assert tensors.protocol_dtype(tensors.numpy_dtype("BF16")) == "UINT16"


@pytest.mark.parametrize("dtype", ["S3", "U3", "O"])
def test_texts_of_any_numpy_kind_are_bytes(dtype: str) -> None:
    assert tensors.protocol_dtype(np.dtype(dtype)) == "BYTES"


@pytest.mark.parametrize("dtype", ["complex64", "datetime64[s]", "timedelta64[s]", "V4", "longdouble"])
def test_a_numpy_type_without_a_protocol_name_is_refused(dtype: str) -> None:
    with pytest.raises(InvalidRequest, match="no data type"):
        tensors.protocol_dtype(np.dtype(dtype))


@pytest.mark.parametrize("name", ["", "fp32", "TYPE_FP32", "STRING", "FLOAT", "<invalid>"])
def test_an_unknown_protocol_name_is_refused_everywhere(name: str) -> None:
    for ask in (tensors.numpy_dtype, tensors.itemsize, tensors.config_type):
        with pytest.raises(InvalidRequest, match="not a data type"):
            ask(name)


@pytest.mark.parametrize("name", ["", "FP32", "TYPE_INVALID", "TYPE_BYTES", "type_fp32"])
def test_an_unknown_config_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="not a data type"):
        tensors.config_dtype(name)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_what_is_encoded_is_decoded_again(elements: list[bytes]) -> None:
    array = np.array([*elements, b""], dtype=np.object_)[:-1]

    assert elements == tensors.decode_bytes(memoryview(tensors.encode_bytes(array)), len(elements)).tolist()


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([b"a", "é", 3, 2.5, None], dtype=np.object_), [b"a", "é".encode(), b"3", b"2.5", b"None"]),
        (np.array([b"ab", b"c"], dtype="S2"), [b"ab", b"c"]),
        (np.array(["ab", "é"]), [b"ab", "é".encode()]),
        (np.array([[b"a", b"b"], [b"c", b"d"]], dtype=np.object_).T, [b"a", b"c", b"b", b"d"]),
        (np.array(b"x", dtype=np.object_), [b"x"]),
    ],
)
def test_elements_travel_in_c_order_as_bytes_of_what_they_are(array: np.ndarray, expected: list[bytes]) -> None:
    assert expected == tensors.decode_bytes(tensors.encode_bytes(array), len(expected)).tolist()


def _elements(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


@pytest.mark.parametrize(
    ("data", "count", "message"),
    [
        (b"", 1, "need at least 4 bytes, got 0"),
        (b"\0\0\0", 1, "need at least 4 bytes, got 3"),
        (_elements(b"abc") + b"\0\0\0", 2, "no room for its length at offset 7 of 10"),
        (_elements(b"abc")[:-1], 1, "3 bytes at offset 4, but only 2 of 6 are left"),
        (b"\xff\xff\xff\xff", 1, "4294967295 bytes at offset 4, but only 0"),
        (_elements(b"a", b"b"), 1, "end at offset 5, but 5 bytes follow"),
        (b"\0", 0, "end at offset 0, but 1 bytes follow"),
        (_elements(b"a"), 1 << 40, "need at least"),
    ],
)
def test_bytes_that_do_not_hold_exactly_the_elements_are_refused_with_the_offset(data: bytes, count: int, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        tensors.decode_bytes(data, count)


@given(st.binary(max_size=64), st.integers(0, 8))
def test_no_bytes_whatever_break_the_decoder(data: bytes, count: int) -> None:
    try:
        array = tensors.decode_bytes(data, count)
    except InvalidRequest:
        return

    assert data == tensors.encode_bytes(array)


def test_decoded_elements_outlive_the_buffer_they_came_from() -> None:
    buffer = bytearray(_elements(b"abc"))
    array = tensors.decode_bytes(memoryview(buffer), 1)
    buffer[4:] = b"xyz"

    assert array.tolist() == [b"abc"]
