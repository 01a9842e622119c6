from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from functions.errors import InvalidRequest, StartFailed
from functions.protocol.classification import classify, read_labels
from tests.functions.protocol.models import LAB


@pytest.mark.parametrize(
    ("array", "datatype", "count", "expected"),
    [
        (np.array([0.1, 0.7, 0.9], np.float32), "FP32", 2, [b"0.900000:2", b"0.700000:1"]),
        (np.array([5, 9, 5, 9], np.int32), "INT32", 9, [b"9:1", b"9:3", b"5:0", b"5:2"]),
        (np.array([0, 255, 1], np.uint8), "UINT8", 1, [b"255:1"]),
        (np.array([-128, 0], np.int8), "INT8", 2, [b"0:1", b"-128:0"]),
        (np.array([np.nan, 1], np.float64), "FP64", 2, [b"1.000000:1", b"nan:0"]),
        (np.array([0.5], np.float16), "FP16", 1, [b"0.500000:0"]),
        (np.array([], np.float32), "FP32", 1, []),
        (np.array([[1, 3], [2, 0]], np.float32), "FP32", 1, [b"3.000000:1"]),
    ],
)
def test_the_highest_come_first_and_equals_by_index(array: np.ndarray, datatype: str, count: int, expected: list[bytes]) -> None:
    assert expected == classify(array, datatype, count, batched=False).tolist()


@pytest.mark.parametrize(
    ("shape", "expected"), [((2, 3), (2, 2)), ((2, 1), (2, 1)), ((0, 3), (0, 2)), ((2, 0), (2, 0)), ((2, 2, 2), (2, 2))]
)
def test_the_batch_is_kept(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert expected == classify(np.zeros(shape, np.float32), "FP32", 2, batched=True).shape


def test_blank_and_missing_labels_are_left_out() -> None:
    answer = classify(np.array([3, 2, 1], np.int64), "INT64", 3, False, ("cat", ""))

    assert [b"3:0:cat", b"2:1", b"1:2"] == answer.tolist()


@pytest.mark.parametrize("datatype", ["BYTES", "BF16", "BOOL"])
def test_a_type_without_an_order_is_refused(datatype: str) -> None:
    with pytest.raises(InvalidRequest, match=f"class result not available for output due to unsupported type '{datatype}'"):
        classify(np.array([b"a"], object), datatype, 1, False)


def test_labels_are_read_by_line(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\n\ndog é\n", "utf-8")

    assert {"OUTPUT0": ("cat", "", "dog é")} == read_labels(LAB, str(tmp_path))


def test_a_label_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"lab: label file of output 'OUTPUT0', labels\.txt"):
        read_labels(LAB, str(tmp_path))
