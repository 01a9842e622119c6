"""A machine's copy: laid out as models expect it, whole, shared, bounded, and right."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from functions.errors import InternalError, NoCapacity, NotFound
from functions.names import Ref
from functions.records import VersionRecord
from registry import keys
from registry.cache import Cache
from registry.stores import open_store
from registry.stores.base import Store
from tests.registry.conftest import Author
from tests.registry.dying import deaths


@pytest.fixture
def cache(store: Store, tmp_path: Path) -> Cache:
    return Cache(store, tmp_path / "cache")


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file() and not path.is_symlink()
    }


def blobs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("blobs/*"))


def test_a_version_lies_under_its_own_number_with_a_link_from_the_authors(author: Author, cache: Cache) -> None:
    author.record("f", "one")
    record = author.registry.record(author.bundle("f", "two", files={"labels.txt": b"a", "1/deep/er/x": b"y"}), "f", "anna")[0]
    model_dir = cache.materialise(record)

    assert "f" == model_dir.name
    assert {"config.pbtxt": b"f", "labels.txt": b"a", "2/model.py": b"two", "2/deep/er/x": b"y"} == tree(model_dir)
    assert "2" == os.readlink(model_dir / "1")
    assert b"two" == (model_dir / "1" / "model.py").read_bytes()


def test_there_is_no_link_where_the_numbers_are_the_same(author: Author, cache: Cache) -> None:
    model_dir = cache.materialise(author.record("f"))

    assert {"config.pbtxt", "1"} == {path.name for path in model_dir.iterdir()}
    assert not (model_dir / "1").is_symlink()


def test_an_ensemble_has_an_empty_version_directory(author: Author, cache: Cache) -> None:
    bundle = author.bundle("f", author_dir="")
    files = {path: file for path, file in bundle.files.items() if path == "config.pbtxt"}
    record = VersionRecord("f", 3, "sha256:" + "0" * 64, "", files, {}, {}, "")
    for path, file in files.items():
        author.registry.put_blob(file.sha256, bundle.staging / path)
    model_dir = cache.materialise(record)

    assert {"config.pbtxt", "3"} == {path.name for path in model_dir.iterdir()}
    assert [] == list((model_dir / "3").iterdir())


def test_files_are_executable_where_they_were_and_read_only(author: Author, cache: Cache) -> None:
    record = author.registry.record(author.bundle("f", files={"1/run.sh": b"same", "1/run.txt": b"same"}), "f", "anna")[0]
    model_dir = cache.materialise(record)

    assert (0o555, 0o444) == tuple((model_dir / "1" / name).stat().st_mode & 0o777 for name in ("run.sh", "run.txt"))


def test_versions_share_their_common_files(author: Author, cache: Cache, tmp_path: Path) -> None:
    for text in ("one", "two"):
        cache.materialise(author.registry.record(author.bundle("f", text, files={"1/weights": b"w" * 1000}), "f", "anna")[0])

    assert 4 == len(blobs(tmp_path))
    assert 3 in {blob.stat().st_nlink for blob in blobs(tmp_path)}


def test_what_is_there_is_not_fetched_again(author: Author, cache: Cache, store: Store) -> None:
    record = author.record("f")
    model_dir = cache.materialise(record)
    for entry in list(store.list(keys.BLOBS)):
        store.delete(entry.key)

    assert model_dir == cache.materialise(record)
    with pytest.raises(NotFound):
        cache.materialise(_with_lost_file(record))


def _with_lost_file(record: VersionRecord) -> VersionRecord:
    """The same as another version, with one file more that the store does not have."""
    file = next(iter(record.files.values()))._replace(sha256="0" * 64)
    return VersionRecord(record.name, 2, "sha256:1" + record.digest[8:], "", {**record.files, "1/lost": file}, {}, {}, "1")


def test_a_failed_build_leaves_nothing(author: Author, cache: Cache, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        cache.materialise(_with_lost_file(author.record("f")))

    assert [] == list((tmp_path / "cache" / "versions").iterdir())
    assert [] == list((tmp_path / "cache" / "building").iterdir())


def test_a_damaged_blob_of_the_store_is_refused(author: Author, cache: Cache, store: Store) -> None:
    record = author.record("f", "good")
    store.put(keys.blob(record.files["1/model.py"].sha256), b"evil")

    with pytest.raises(InternalError, match="damaged"):
        cache.materialise(record)


@pytest.mark.parametrize("damage", ["overwritten", "truncated", "removed", "replaced"])
def test_what_a_function_did_to_its_files_is_put_right_at_the_next_start(author: Author, cache: Cache, damage: str) -> None:
    record = author.record("f", "good")
    file = cache.materialise(record) / "1" / "model.py"
    if damage in ("overwritten", "truncated"):
        file.chmod(0o644)
        file.write_bytes(b"evil" if damage == "overwritten" else b"")
    else:
        file.unlink()
        if damage == "replaced":
            file.write_bytes(b"evil")

    assert b"good" == (cache.materialise(record) / "1" / "model.py").read_bytes()


def test_what_a_function_left_beside_its_files_stays(author: Author, cache: Cache) -> None:
    record = author.record("f")
    (cache.materialise(record) / "1" / "__pycache__").mkdir()

    assert (cache.materialise(record) / "1" / "__pycache__").is_dir()


def test_after_a_boot_files_are_hashed_before_they_are_trusted(
    author: Author, cache: Cache, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = author.record("f", "good")
    file = cache.materialise(record) / "1" / "model.py"
    stamp = file.stat().st_mtime_ns
    file.chmod(0o644)
    file.write_bytes(b"\0\0\0\0")
    os.utime(file, ns=(stamp, stamp))
    (tmp_path / "boot_id").write_text("another boot")
    monkeypatch.setattr("registry.cache._BOOT_ID", tmp_path / "boot_id")
    model_dir = Cache(store, tmp_path / "cache").materialise(record)

    assert b"good" == (model_dir / "1" / "model.py").read_bytes()


def test_many_threads_and_processes_make_one_directory(author: Author, store: Store, tmp_path: Path) -> None:
    record = author.registry.record(author.bundle("f", files={f"1/{n}": os.urandom(1000) for n in range(20)}), "f", "anna")[0]
    caches = [Cache(open_store(store.url), tmp_path / "cache") for _ in range(4)]
    together = threading.Barrier(16)

    def materialise(number: int) -> Path:
        together.wait()
        return caches[number % 4].materialise(record)

    with ThreadPoolExecutor(16) as pool:
        made = set(pool.map(materialise, range(16)))

    assert 1 == len(made)
    assert 22 == len(tree(made.pop()))
    assert [] == list((tmp_path / "cache" / "building").iterdir())


def test_a_builder_killed_at_any_point_leaves_a_whole_directory_or_none(author: Author, store: Store, tmp_path: Path) -> None:
    record = author.registry.record(author.bundle("f", "text", files={"1/x": b"x" * 10_000}, author_dir="1"), "f", "anna")[0]

    for _ in deaths(lambda: Cache(store, tmp_path / "cache").materialise(record)):
        for made in (tmp_path / "cache" / "versions").glob("*/f"):
            assert {"config.pbtxt": b"f", "1/model.py": b"text", "1/x": b"x" * 10_000} == tree(made)
        for blob in blobs(tmp_path):
            assert blob.stat().st_size == next(file.size for file in record.files.values() if file.sha256 == blob.name)

    assert 1 == len(list((tmp_path / "cache" / "versions").glob("*/f")))


def test_the_longest_unused_versions_make_room(author: Author, store: Store, tmp_path: Path) -> None:
    cache = Cache(store, tmp_path / "cache", limit_bytes=3100, grace_s=-1)
    records = [author.registry.record(author.bundle("f", str(n), files={"1/w": bytes([n]) * 1000}), "f", "anna")[0] for n in range(4)]
    places = [cache.materialise(record) for record in records[:3]]
    for age, place in zip((30, 10, 20), places, strict=True):
        os.utime(place.parent, (place.parent.stat().st_mtime - age,) * 2)
    cache.materialise(records[0])
    cache.materialise(records[3])

    assert [True, True, False] == [place.exists() for place in places]
    assert sum(blob.stat().st_size for blob in blobs(tmp_path)) <= 3100


def test_what_runs_and_what_was_just_asked_for_is_never_removed(author: Author, store: Store, tmp_path: Path) -> None:
    records = [author.registry.record(author.bundle("f", str(n), files={"1/w": bytes([n]) * 1000}), "f", "anna")[0] for n in range(3)]
    running = Cache(store, tmp_path / "cache", limit_bytes=1500, in_use=lambda: [Ref("f", 1)], grace_s=-1)
    places = [running.materialise(record) for record in records]
    assert [True, False, True] == [place.exists() for place in places]

    patient = Cache(store, tmp_path / "other", limit_bytes=1500)
    assert all(place.exists() for place in [patient.materialise(record) for record in records])


def test_a_version_larger_than_the_cache_is_refused(author: Author, store: Store, tmp_path: Path) -> None:
    with pytest.raises(NoCapacity, match="f@1"):
        Cache(store, tmp_path / "cache", limit_bytes=1).materialise(author.record("f"))
