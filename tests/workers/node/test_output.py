from __future__ import annotations

import os
from pathlib import Path

import pytest

from workers.node import output
from workers.node.output import Outputs


def test_the_last_lines_of_all_replicas_come_newest_last(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    for index, name in enumerate(("a", "b")):
        with outputs.open("f@1", name) as file:
            file.write(f"{name}1\n{name}2\n".encode())
        os.utime(tmp_path / "f@1" / f"{name}.log", (index, index))

    assert ["a2", "b1", "b2"] == outputs.tail("f@1", 3)
    assert ["a1", "a2"] == outputs.tail("f@1", 9, "a")
    assert [] == outputs.tail("f@1", 0)
    assert [] == outputs.tail("g@1", 5)
    assert [] == outputs.tail("f@1", 5, "ghost")


def test_old_files_of_a_version_are_removed(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    for index in range(output.KEPT + 3):
        outputs.open("f@1", str(index)).close()
        os.utime(tmp_path / "f@1" / f"{index}.log", (index, index))

    assert sorted(f"{index}.log" for index in range(3, output.KEPT + 3)) == sorted(path.name for path in (tmp_path / "f@1").iterdir())


def test_a_file_that_grew_is_cut_while_its_writer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LIMIT_BYTES", 1000)
    outputs = Outputs(tmp_path)
    with outputs.open("f@1", "a") as file:
        for line in range(200):
            file.write(b"line %06d\n" % line)
        outputs.trim("f@1", "a")
        file.write(b"after\n")

    assert 506 == (tmp_path / "f@1" / "a.log").stat().st_size
    assert ["line 000199", "after"] == outputs.tail("f@1", 2)
    outputs.trim("f@1", "ghost")


def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    with outputs.open("f@1", "a") as file:
        file.write(b"\xff\xfe\n")

    assert ["\ufffd\ufffd"] == outputs.tail("f@1", 1)


def test_a_note_stands_below_what_the_replica_wrote(tmp_path: Path) -> None:
    """After a crash the log ended with the author's last line, and the reason stood only in the node's own."""
    outputs = Outputs(tmp_path)
    with outputs.open("f@1", "r1") as file:
        file.write(b"working\n")
    outputs.note("f@1", "r1", "it ended with exit code 3")
    lines = outputs.tail("f@1", 10)

    assert "working" == lines[0]
    assert lines[1].startswith("[despina 20")
    assert lines[1].endswith("it ended with exit code 3")
