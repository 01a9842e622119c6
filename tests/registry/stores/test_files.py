"""The file store: what only a directory can suffer. Its other promises: tests/contracts/test_stores.py."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from functions.errors import InternalError, InvalidRequest, StoreUnreachable
from registry.stores import open_store
from registry.stores.files import ABANDONED_S, WRITING, FileStore
from tests.registry.dying import deaths

BIG = b"0123456789abcdef" * 20_000


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(f"file://{tmp_path}/store")


def test_a_url_may_have_escapes(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/with%20space").put("a", b"x")

    assert b"x" == (tmp_path / "with space" / "a").read_bytes()


@pytest.mark.parametrize("url", ["file://relative/dir", "file:///", "file:///a?sync=0", "file:dir", "ftp://x/y", "/a/path", ""])
def test_a_url_that_is_not_a_directory_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        open_store(url)


def test_a_directory_that_cannot_be_made_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreUnreachable, match="Not a directory"):
        open_store(f"file://{tmp_path}/file/store")


def test_a_store_that_was_moved_away_is_unreachable_rather_than_empty(store: FileStore, tmp_path: Path) -> None:
    store.put("a/b", b"x")
    store.root.rename(tmp_path / "elsewhere")

    for call in (lambda: store.get("a/b"), lambda: store.size("a/b"), lambda: list(store.list("a/")), lambda: store.put("c", b"")):
        with pytest.raises(StoreUnreachable, match="gone"):
            call()


def test_a_full_disk_is_told_and_leaves_the_old_object(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("key", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnreachable, match=r"No space left.*\(key\)"):
        store.put("key", b"new")
    monkeypatch.undo()

    assert b"old" == store.get("key")
    assert [] == list((store.root / WRITING).iterdir())


def test_a_key_inside_another_object_is_our_mistake(store: FileStore) -> None:
    store.put("a", b"x")
    store.put("b/c", b"x")

    with pytest.raises(InternalError):
        store.put("a/b", b"x")
    with pytest.raises(InternalError):
        store.put("b", b"x")


def test_drafts_of_the_dead_are_removed_a_day_later(store: FileStore) -> None:
    old, young = store.root / WRITING / "old", store.root / WRITING / "young"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (time.time() - ABANDONED_S - 10,) * 2)

    FileStore(store.url)

    assert not old.exists()
    assert young.exists()


@pytest.mark.parametrize("method", ["put", "create"])
def test_a_writer_killed_at_any_point_leaves_all_or_nothing(store: FileStore, method: str) -> None:
    for _ in deaths(lambda: getattr(store, method)("new/folder/key", BIG)):
        assert store.size("new/folder/key") in (None, len(BIG))
        assert [] == [entry for entry in store.list("") if entry.size != len(BIG)]

    assert BIG == store.get("new/folder/key")


def test_a_replacing_writer_killed_at_any_point_leaves_the_old_or_the_new(store: FileStore, tmp_path: Path) -> None:
    store.put("key", b"old")
    (tmp_path / "new").write_bytes(BIG)

    for _ in deaths(lambda: store.put_file("key", tmp_path / "new")):
        assert store.get("key") in (b"old", BIG)

    assert BIG == store.get("key")


WRITER = """
import hashlib, os, sys
from registry.stores import open_store
store, path = open_store(sys.argv[1]), sys.argv[2]
print("started", flush=True)
for number in range(1_000_000):
    data = os.urandom(number % 7 * 50_000 + 1)
    key = hashlib.sha256(data).hexdigest()
    with open(path, "wb") as file:
        file.write(data)
    store.put_file(f"put/{key}", __import__("pathlib").Path(path)) if number % 2 else store.create(f"created/{key}", data)
    store.put("last", (key + data.hex()).encode())
    print(number, flush=True)
"""


def test_writers_killed_while_they_are_busy_leave_only_whole_objects(store: FileStore, tmp_path: Path) -> None:
    for round_ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, store.url, str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(2 + 3 * round_):
                writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)

        assert -signal.SIGKILL == writer.returncode
        entries = list(store.list(""))
        assert len(entries) > 1
        for entry in entries:
            data = store.get(entry.key)
            if entry.key == "last":
                assert data[:64].decode() == hashlib.sha256(bytes.fromhex(data[64:].decode())).hexdigest()
            else:
                assert entry.key.rpartition("/")[2] == hashlib.sha256(data).hexdigest()
