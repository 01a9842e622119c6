"""Blobs: nothing goes in or out under a wrong digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from functions.errors import InternalError, InvalidRequest, NotFound
from registry import keys
from registry.blobs import Blobs
from registry.stores.base import Store

ONE, TWO = (hashlib.sha256(text).hexdigest() for text in (b"one", b"two"))


@pytest.fixture
def blobs(store: Store) -> Blobs:
    return Blobs(store)


@pytest.fixture
def one(tmp_path: Path) -> Path:
    (tmp_path / "one").write_bytes(b"one")
    return tmp_path / "one"


def test_what_was_put_is_no_longer_missing(blobs: Blobs, one: Path) -> None:
    assert sorted([ONE, TWO]) == blobs.missing({ONE: 3, TWO: 3})

    blobs.put(ONE, one)

    assert [TWO] == blobs.missing({ONE: 3, TWO: 3})


def test_bytes_of_another_digest_are_refused(blobs: Blobs, one: Path, store: Store) -> None:
    with pytest.raises(InvalidRequest, match=f"blob {TWO} have sha256 {ONE}"):
        blobs.put(TWO, one)
    assert [] == list(store.list(keys.BLOBS))


@pytest.mark.parametrize("sha", ["", "x", ONE.upper(), "../" + ONE[3:]])
def test_what_is_no_digest_is_refused(blobs: Blobs, one: Path, sha: str) -> None:
    with pytest.raises(InvalidRequest, match="64 lower-case"):
        blobs.missing({sha: 3})
    with pytest.raises(InvalidRequest, match="64 lower-case"):
        blobs.put(sha, one)


def test_a_size_that_is_not_the_stored_one_is_refused(blobs: Blobs, one: Path) -> None:
    blobs.put(ONE, one)

    with pytest.raises(InvalidRequest, match="3 bytes long, not 4"):
        blobs.missing({ONE: 4})


def test_a_fetched_blob_is_checked(blobs: Blobs, one: Path, store: Store, tmp_path: Path) -> None:
    blobs.put(ONE, one)
    blobs.fetch(ONE, tmp_path / "out")
    store.put(keys.blob(ONE), b"onE")

    assert b"one" == (tmp_path / "out").read_bytes()
    with pytest.raises(InternalError, match="damaged"):
        blobs.fetch(ONE, tmp_path / "damaged")
    assert not (tmp_path / "damaged").exists()
    with pytest.raises(NotFound):
        blobs.fetch(TWO, tmp_path / "absent")
