"""Counters outlive their processes; what cannot be read costs nothing but itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from workers.node.pages import Pages, well_formed
from workers.process import page
from workers.process.page import Page, Sample

LABELS = {"model": "f", "version": "1"}


def write(path: str, **values: float) -> None:
    if not os.path.exists(path):
        page.create(path)
    writer = Page(path)
    for family, value in values.items():
        gauge = family.startswith("pending") or family.endswith("_ms")
        writer.values[writer.series(family, LABELS, "gauge" if gauge else "counter")] = value


def values(pages: Pages) -> dict[str, float]:
    return {sample.family: sample.value for sample in pages.samples()}


def dead_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def test_the_pages_of_all_processes_are_added_up(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    write(pages.path("a"), success=3, pending=2)
    write(str(tmp_path / f"gateway-{os.getpid()}"), success=4, pending=1)

    assert {"success": 7.0, "pending": 3.0} == values(pages)


def test_counters_of_the_dead_stay_and_their_gauges_go(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    write(pages.path("a"), success=3, pending=2)
    assert 3.0 == values(pages)["success"]
    pages.fold("a")
    write(pages.path("b"), success=1)

    assert {"success": 4.0} == values(pages)
    assert [tmp_path / "replica-b"] == list(tmp_path.iterdir())


def test_the_time_of_the_last_inference_is_the_latest_of_all_and_is_kept(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    write(pages.path("a"), despina_last_inference_ms=500)
    write(pages.path("b"), despina_last_inference_ms=400)
    pages.fold("a")

    assert {"despina_last_inference_ms": 500.0} == values(pages)


def test_the_page_of_another_process_is_folded_when_that_process_is_gone(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    write(str(tmp_path / f"gateway-{dead_pid()}"), success=5, pending=9)

    assert {"success": 5.0} == values(pages)
    assert {"success": 5.0} == values(pages)
    assert [] == list(tmp_path.iterdir())


def test_a_number_that_another_process_was_given_later_is_not_the_writer(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    path = tmp_path / f"gateway-{os.getpid()}"
    write(str(path), success=5)
    os.utime(path, (1, 1))

    assert {"success": 5.0} == values(pages)
    assert [] == list(tmp_path.iterdir())


def test_replica_pages_of_an_earlier_node_are_folded_at_the_start(tmp_path: Path) -> None:
    write(Pages(tmp_path).path("a"), success=2)
    pages = Pages(tmp_path)
    pages.fold_left()

    assert {"success": 2.0} == values(pages)
    assert [] == list(tmp_path.iterdir())


def test_a_broken_page_costs_only_itself(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    write(pages.path("good"), success=2)
    (tmp_path / "replica-short").write_bytes(b"x")
    write(pages.path("bad"), success=1)
    with open(pages.path("bad"), "r+b") as file:
        file.seek(page.TEXT)
        file.write(b"}{")

    assert {"success": 2.0} == values(pages)


def test_folding_what_was_never_made_does_nothing(tmp_path: Path) -> None:
    Pages(tmp_path).fold("ghost")


@pytest.mark.parametrize(
    "sample",
    [
        Sample("a b", "counter", {}, 1.0),
        Sample('a"', "counter", {}, 1.0),
        Sample("a", "histogram", {}, 1.0),
        Sample("a", "counter", {"x y": "v"}, 1.0),
        Sample("a", "counter", {"__name__": "v"}, 1.0),
        Sample("a", "counter", {"x": 1}, 1.0),  # type: ignore[dict-item]
        Sample(1, "counter", {}, 1.0),  # type: ignore[arg-type]
        Sample("a", "counter", [], 1.0),  # type: ignore[arg-type]
    ],
)
def test_what_would_break_the_text_format_is_not_well_formed(sample: Sample) -> None:
    assert not well_formed(sample)
    assert well_formed(Sample("a", "gauge", {"_tag": 'any "text"\n'}, 1.0))
