"""The page: what one process counts another reads, also after the first has died."""

import os
import signal
from pathlib import Path

import pytest

from functions.errors import InternalError
from workers.process import page
from workers.process.page import Batch, Page, PageReader, Sample


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = str(tmp_path / "one.page")
    page.create(made)
    return made


def test_an_empty_page_has_nothing(path: str) -> None:
    reader = PageReader(path)

    assert list(reader.samples()) == []
    assert reader.running() == []


def test_series_are_read_as_they_were_counted(path: str) -> None:
    writer, reader = Page(path), PageReader(path)
    one = writer.series("nv_inference_count", {"model": "f", "version": "1"})
    writer.values[one] += 3
    two = writer.series("pending", {"model": "f"}, "gauge")
    writer.values[two] = 2.5

    assert one == writer.series("nv_inference_count", {"version": "1", "model": "f"})
    assert list(reader.samples()) == [
        Sample("nv_inference_count", "counter", {"model": "f", "version": "1"}, 3.0),
        Sample("pending", "gauge", {"model": "f"}, 2.5),
    ]


def test_a_batch_is_seen_while_it_runs(path: str) -> None:
    writer, reader = Page(path), PageReader(path)
    writer.start(0, [1 << 48 | 5, 1 << 48 | 6], 1000)
    writer.start(3, [2 << 48 | 1], 2000)

    assert reader.running() == [Batch(1000, (1 << 48 | 5, 1 << 48 | 6)), Batch(2000, (2 << 48 | 1,))]

    writer.finish(0)

    assert reader.running() == [Batch(2000, (2 << 48 | 1,))]


def test_more_ids_than_fit_are_cut(path: str) -> None:
    writer, reader = Page(path), PageReader(path)
    writer.start(0, range(5_000), 1)

    assert len(reader.running()[0].calls) == page.BATCH_IDS


def test_the_page_survives_its_writer(path: str) -> None:
    child = os.fork()
    if child == 0:
        writer = Page(path)
        writer.values[writer.series("count", {})] += 7
        writer.start(0, [42], 9)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    reader = PageReader(path)

    assert list(reader.samples()) == [Sample("count", "counter", {}, 7.0)]
    assert reader.running() == [Batch(9, (42,))]


def test_a_full_page_says_so(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "SERIES", 2)
    writer = Page(path)
    writer.series("a", {})
    writer.series("b", {})

    with pytest.raises(InternalError, match="2 series"):
        writer.series("c", {})


def test_a_page_is_never_made_over_another(path: str) -> None:
    with pytest.raises(FileExistsError):
        page.create(path)


def test_another_file_is_not_taken_for_a_page(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 100)

    with pytest.raises(InternalError, match="not a page"):
        PageReader(str(other))


def test_a_page_has_all_its_blocks_from_the_start(path: str) -> None:
    """A sparse page on a full disk killed the node with SIGBUS at the next count."""
    assert os.stat(path).st_blocks * 512 >= page.SIZE
