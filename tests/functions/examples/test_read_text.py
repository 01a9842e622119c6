from __future__ import annotations

from collections import Counter

import cv2
import numpy as np
import pytest

from functions.examples import pictures
from tests.functions.examples.driver import Driver, Failure


def image(encoded: bytes) -> dict[str, np.ndarray]:
    return {"IMAGE": np.array([encoded], dtype=object)}


def test_it_reads_the_page(driver: Driver) -> None:
    answer = driver.call("read_text", image(pictures.page().read_bytes()))
    lines = [line.decode() for line in answer["TEXT"]]

    assert len(pictures.PAGE_TEXT) == len(lines)
    assert sum(expected == line for expected, line in zip(pictures.PAGE_TEXT, lines, strict=True)) >= 6
    assert (7, 4, 2) == answer["BOXES"].shape
    assert sorted(answer["BOXES"][:, 0, 1]) == answer["BOXES"][:, 0, 1].tolist(), "lines come in reading order"
    assert (answer["SCORES"] > 0.9).all()


def test_lines_share_calls_and_a_picture_without_text_needs_none(driver: Driver) -> None:
    page = driver.call("read_text", image(pictures.page().read_bytes()))
    called = Counter(driver.called)

    assert page["CALLS"].tolist() == [called["text_recognizer"]]
    assert 1 <= called["text_recognizer"] < len(page["TEXT"])

    driver.called.clear()
    blank = driver.call("read_text", image(cv2.imencode(".png", np.full((80, 200, 3), 255, np.uint8))[1].tobytes()))
    assert "text_recognizer" not in driver.called
    assert {"TEXT": (0,), "BOXES": (0, 4, 2), "SCORES": (0,), "CALLS": (1,)} == {name: array.shape for name, array in blank.items()}


@pytest.mark.parametrize("encoded", [b"", b"nonsense", b"\x89PNG\r\n\x1a\n"])
def test_bytes_that_are_no_picture_are_the_callers_error(driver: Driver, encoded: bytes) -> None:
    with pytest.raises(Failure, match=f"IMAGE holds {len(encoded)} bytes that are no picture"):
        driver.call("read_text", image(encoded))


def test_two_words_on_one_height_are_read_from_left_to_right(driver: Driver) -> None:
    canvas = np.full((120, 640, 3), 255, np.uint8)
    for text, x, y in (("WORLD", 400, 52), ("HELLO", 20, 50), ("BELOW", 200, 105)):
        cv2.putText(canvas, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, 1.5, (0, 0, 0), 3)
    answer = driver.call("read_text", image(cv2.imencode(".png", canvas)[1].tobytes()))

    assert [b"HELLO", b"WORLD", b"BELOW"] == answer["TEXT"].tolist()


def test_a_batch_holds_lines_of_similar_width_up_to_the_limit(driver: Driver) -> None:
    split = driver.module("read_text").split

    assert split([], 8) == []
    assert split([100, 900, 110, 120], 8) == [[0, 2, 3], [1]]
    assert split([100] * 5, 2) == [[0, 1], [2, 3], [4]]
    assert split([5, 60, 90], 8) == [[0, 1, 2]], "up to one padding step, widths do not matter"


@pytest.mark.parametrize(
    ("characters", "text"),
    [
        ([b"", b"a", b"a", b"", b"a", b"b"], "aab"),
        ([b"", b"", b""], ""),
        (["漢".encode(), "漢".encode(), b" ", "字".encode()], "漢 字"),
    ],
)
def test_repeats_without_a_blank_between_are_one_character(driver: Driver, characters: list[bytes], text: str) -> None:
    decode = driver.module("read_text").decode
    line = decode(np.array(characters, dtype=object), np.linspace(0.5, 1.0, len(characters), dtype=np.float32))

    assert text == line[0]
    assert (line[1] == 0.0) == (text == "")


@pytest.mark.parametrize(
    ("size", "expected"),
    [((191, 384), [736, 1472]), ((736, 736), [736, 736]), ((4000, 3000), [1984, 1504]), ((10, 4000), [32, 1984]), ((1, 1), [736, 736])],
)
def test_the_detector_sees_small_pictures_enlarged_and_large_ones_reduced(
    driver: Driver, size: tuple[int, int], expected: list[int]
) -> None:
    assert expected == driver.module("decode_image").detector_size(size, 736, 2000)


def test_a_box_grows_by_area_times_ratio_over_perimeter_on_each_side(driver: Driver) -> None:
    _, size, _ = driver.module("text_boxes").grown(((50, 50), (100, 20), 0), 1.6)

    distance = 100 * 20 * 1.6 / 240
    assert size == pytest.approx((100 + 2 * distance, 20 + 2 * distance))


def test_corners_run_clockwise_from_the_top_left(driver: Driver) -> None:
    corners = np.float32([[0, 0], [10, 1], [9, 6], [1, 5]])
    clockwise = driver.module("text_boxes").clockwise

    for order in ([0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]):
        assert corners.tolist() == clockwise(corners[order]).tolist()
