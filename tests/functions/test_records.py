"""Records: they survive the store unchanged, and digests depend on what they must and on nothing else."""

import json
from dataclasses import replace

import pytest

from functions.errors import InternalError
from functions.records import File, Locked, TagRecord, Target, VersionRecord, content_digest, dump, version_digest

A = File("a" * 64, 10, False)
B = File("b" * 64, 20, True)
VERSION = VersionRecord(
    name="read_text",
    version=3,
    digest="sha256:1",
    content="sha256:2",
    files={"config.pbtxt": A, "1/model.py": B},
    config={"name": "read_text", "max_batch_size": 8},
    manifest={"limits": {"timeout_s": 5.0}},
    author_dir="1",
    lock={"detect_text": Locked(2, "sha256:9", "live", False, "source"), "boxes": Locked(7, "sha256:8", None, True, "manifest")},
    origin="relock",
    created="2026-01-01T00:00:00Z",
    by="ann",
    warnings=("one", "two"),
)
TAG = TagRecord(
    "read_text", "live", 4, (Target(2, 0.1), Target(3, 0.9)), "2026-01-01T00:00:00Z", "ann", "r-1", held=True, reason="rollback"
)


def test_a_version_record_survives_the_store() -> None:
    assert VersionRecord.from_json(json.loads(dump(VERSION))) == VERSION


def test_a_tag_record_survives_the_store() -> None:
    assert TagRecord.from_json(json.loads(dump(TAG))) == TAG


@pytest.mark.parametrize("kind", [VersionRecord, TagRecord])
def test_a_record_of_another_format_is_not_guessed_at(kind: type[VersionRecord] | type[TagRecord]) -> None:
    with pytest.raises(InternalError, match="format 99"):
        kind.from_json({"format": 99})


def test_equal_records_are_equal_bytes() -> None:
    shuffled = replace(VERSION, files=dict(reversed(VERSION.files.items())), lock=dict(reversed(VERSION.lock.items())))

    assert dump(shuffled) == dump(VERSION)


def test_a_version_knows_its_size() -> None:
    assert VERSION.size_bytes == 30


def test_a_tag_answers_for_its_heaviest_target() -> None:
    assert TAG.version == 3
    assert TAG.versions == {2, 3}
    assert TAG.etag == '"4"'


def test_content_is_independent_of_order() -> None:
    assert content_digest({"y": B, "x": A}) == content_digest({"x": A, "y": B})


@pytest.mark.parametrize(
    "other",
    [
        {"x": A},
        {"x": A, "z": B},
        {"x": A, "y": File("c" * 64, 20, True)},
        {"x": A, "y": File("b" * 64, 20, False)},
        {"x": B, "y": A},
    ],
)
def test_content_depends_on_paths_bits_and_bytes(other: dict[str, File]) -> None:
    assert content_digest({"x": A, "y": B}) != content_digest(other)


def test_a_digest_depends_on_the_callees_digest_not_on_its_number() -> None:
    one = version_digest("c", {"f": Locked(1, "sha256:f")}, "")

    assert one == version_digest("c", {"f": Locked(9, "sha256:f")}, "")
    assert one != version_digest("c", {"f": Locked(1, "sha256:g")}, "")
    assert one != version_digest("c", {}, "")
    assert one != version_digest("c", {"f": Locked(1, "sha256:f")}, "env")
    assert one != version_digest("d", {"f": Locked(1, "sha256:f")}, "")
