"""The sweep: takes what nobody needs, and nothing else."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from registry import keys
from registry.service import Registry
from registry.stores.base import Store
from registry.stores.files import FileStore
from registry.sweep import KEEP_S, Swept, sweep
from tests.registry.conftest import Author

ORPHAN = hashlib.sha256(b"orphan").hexdigest()


@pytest.fixture
def now(store: Store) -> float:
    """A moment a little later than everything in the store."""
    store.put("now", b"")
    return next(store.list("now")).modified_s + 60


@pytest.fixture
def orphan(registry: Registry, tmp_path: Path) -> str:
    (tmp_path / "orphan").write_bytes(b"orphan")
    registry.put_blob(ORPHAN, tmp_path / "orphan")
    return keys.blob(ORPHAN)


def age(store: Store, key: str, by_s: float) -> None:
    assert isinstance(store, FileStore)
    then = (store.root / key).stat().st_mtime - by_s
    os.utime(store.root / key, (then, then))


def test_an_unreferenced_blob_stays_for_a_day(store: Store, orphan: str, now: float) -> None:
    assert Swept(0, 0) == sweep(store, now + KEEP_S - 120)
    assert Swept(1, 6) == sweep(store, now + KEEP_S + 120)
    assert store.size(orphan) is None


def test_what_a_version_needs_stays_however_old(author: Author, store: Store, now: float) -> None:
    author.record("f")

    assert Swept(0, 0) == sweep(store, now + 100 * KEEP_S)


def test_what_only_deleted_versions_needed_goes(author: Author, registry: Registry, store: Store, now: float) -> None:
    author.record("f", "one")
    author.record("f", "two!")
    registry.delete_version("f", 2)

    assert Swept(1, 4) == sweep(store, now + 2 * KEEP_S)


def test_asking_for_a_blob_keeps_it_another_day(registry: Registry, store: Store, orphan: str, now: float) -> None:
    age(store, orphan, 2 * KEEP_S)
    assert [] == registry.missing({ORPHAN: 6})

    assert Swept(0, 0) == sweep(store, now)


def test_a_blob_that_is_touched_after_it_was_listed_stays(
    registry: Registry, store: Store, orphan: str, now: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(store, orphan, 2 * KEEP_S)
    listing = store.list

    def list_then_touch(prefix: str) -> object:
        entries = list(listing(prefix))
        if prefix == keys.BLOBS:
            registry.missing({ORPHAN: 6})
        return iter(entries)

    monkeypatch.setattr(store, "list", list_then_touch)

    assert Swept(0, 0) == sweep(store, now)


def test_a_publish_puts_again_what_a_sweep_took_in_the_last_moment(
    author: Author, registry: Registry, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = author.bundle("f", "text")
    blob = keys.blob(bundle.files["1/model.py"].sha256)
    create = store.create

    def swept_before_create(key: str, data: bytes) -> bool:
        store.delete(blob)
        return create(key, data)

    monkeypatch.setattr(store, "create", swept_before_create)
    registry.record(bundle, "f", "anna")

    assert 4 == store.size(blob)
