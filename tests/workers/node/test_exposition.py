"""The text format, read back by prometheus_client's own parser."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from workers.node.exposition import number, render


def metric(kind: str = "counter", *values: tuple[dict[str, str], float]) -> Metric:
    made = Metric("nv_inference_count", "Number of \\ things\nand more", kind)
    for labels, value in values:
        made.add_sample("nv_inference_count", labels, value)
    return made


def test_counters_keep_their_name_and_labels_are_sorted() -> None:
    text = render([metric("counter", ({"version": "1", "model": "f", "_a": "x"}, 3.0))])

    expected = (
        b"# HELP nv_inference_count Number of \\\\ things\\nand more\n"
        b"# TYPE nv_inference_count counter\n"
        b'nv_inference_count{_a="x",model="f",version="1"} 3\n'
    )
    assert expected == text


def test_a_family_without_series_still_has_its_two_lines() -> None:
    assert 2 == len(render([metric("gauge")]).splitlines())


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (3.0, "3"), (0.25, "0.25"), (-1.0, "-1"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (1e300, "1e+300")],
)
def test_numbers_are_printed_as_triton_does(value: float, text: str) -> None:
    assert text == number(value)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]*", fullmatch=True), st.text(), max_size=4), st.floats(allow_nan=False))
def test_whatever_the_labels_hold_a_parser_reads_it_back(labels: dict[str, str], value: float) -> None:
    text = render([metric("gauge", (labels, value))]).decode()
    (family,) = text_string_to_metric_families(text)

    assert [(labels, value)] == [(sample.labels, sample.value) for sample in family.samples]
