"""What every object store promises. A new store joins by one line in STORES."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.errors import InternalError, NotFound
from registry.stores import open_store
from registry.stores.base import Store

STORES: dict[str, Callable[[Path], str]] = {
    "file": lambda directory: f"file://{directory}/store",
}
"""Scheme → the URL of an empty store; the directory is a new one for each test."""

SEGMENTS = st.text("abcAB019._-", min_size=1, max_size=5).filter(lambda text: text[0] not in ".-")
KEYS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(STORES[request.param](tmp_path))


def test_what_was_put_is_what_is_got(store: Store) -> None:
    store.put("a/b/c.json", b"one")

    assert b"one" == store.get("a/b/c.json")


def test_an_object_may_be_empty(store: Store) -> None:
    store.put("empty", b"")

    assert b"" == store.get("empty")
    assert 0 == store.size("empty")


def test_a_second_put_replaces_the_first(store: Store) -> None:
    store.put("a/key", b"a longer first value")
    store.put("a/key", b"second")

    assert b"second" == store.get("a/key")


@pytest.mark.parametrize("key", ["missing", "a", "a/b/missing", "a/b/c/d"])
def test_what_is_not_there_is_not_found(store: Store, key: str, tmp_path: Path) -> None:
    store.put("a/b/c", b"x")

    assert store.size(key) is None
    with pytest.raises(NotFound):
        store.get(key)
    with pytest.raises(NotFound):
        store.fetch(key, tmp_path / "fetched")
    with pytest.raises(NotFound):
        store.touch(key)
    assert not (tmp_path / "fetched").exists()


def test_create_writes_only_where_nothing_is(store: Store) -> None:
    assert store.create("a/key", b"first")
    assert not store.create("a/key", b"second")
    assert b"first" == store.get("a/key")


def test_create_does_not_replace_what_put_wrote(store: Store) -> None:
    store.put("a/key", b"put")

    assert not store.create("a/key", b"created")
    assert b"put" == store.get("a/key")


def test_a_deleted_key_may_be_created_again(store: Store) -> None:
    store.create("a/key", b"first")
    store.delete("a/key")
    store.delete("a/key")

    assert store.create("a/key", b"second")
    assert b"second" == store.get("a/key")


def test_of_32_racing_creates_exactly_one_wins_and_its_bytes_stay(store: Store) -> None:
    for round_ in range(10):
        key, start = f"race/{round_}", threading.Barrier(32)

        def create(number: int, key: str = key, start: threading.Barrier = start) -> bool:
            start.wait()
            return store.create(key, b"%d" % number)

        with ThreadPoolExecutor(32) as pool:
            won = list(pool.map(create, range(32)))

        assert 1 == sum(won)
        assert b"%d" % won.index(True) == store.get(key)


def test_creates_of_four_processes_race_the_same_way(store: Store) -> None:
    context = multiprocessing.get_context("fork")
    start, wins = context.Barrier(4), context.SimpleQueue()

    def create_many() -> None:
        mine = open_store(store.url)
        start.wait()
        wins.put([key for key in range(50) if mine.create(f"race/{key:02}", b"%d" % os.getpid())])

    processes = [context.Process(target=create_many) for _ in range(4)]
    for process in processes:
        process.start()
    won = [key for _ in processes for key in wins.get()]
    for process in processes:
        process.join(30)

    assert list(range(50)) == sorted(won)


def test_files_go_in_and_out_whole(store: Store, tmp_path: Path) -> None:
    data = os.urandom(3_000_001)
    (tmp_path / "in").write_bytes(data)

    store.put_file("blobs/x", tmp_path / "in")
    store.fetch("blobs/x", tmp_path / "out")

    assert data == (tmp_path / "out").read_bytes()
    assert len(data) == store.size("blobs/x")


def test_fetch_does_not_write_over_a_file(store: Store, tmp_path: Path) -> None:
    store.put("key", b"new")
    (tmp_path / "mine").write_bytes(b"old")

    with pytest.raises(FileExistsError):
        store.fetch("key", tmp_path / "mine")
    assert b"old" == (tmp_path / "mine").read_bytes()


def test_a_reader_beside_a_writer_sees_one_whole_object_or_the_other(store: Store) -> None:
    values = (b"a" * 300_000, b"b" * 200_000)
    store.put("key", values[0])
    done = threading.Event()

    def write() -> None:
        for turn in range(30):
            store.put("key", values[turn % 2])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(store.get("key"))
    writer.join()

    assert seen <= set(values)


def test_touch_makes_an_object_young_again(store: Store) -> None:
    store.put("key", b"x")
    before = next(store.list("key")).modified_s
    deadline = time.monotonic() + 10
    while next(store.list("key")).modified_s == before:
        assert time.monotonic() < deadline
        store.touch("key")

    assert before < next(store.list("key")).modified_s
    assert b"x" == store.get("key")


def test_modification_times_are_seconds_of_the_epoch(store: Store) -> None:
    store.put("key", b"x")

    assert abs(time.time() - next(store.list("key")).modified_s) < 60


def test_a_listing_is_of_a_prefix_not_of_a_folder(store: Store) -> None:
    for key in ("a/b", "a/bc/d", "a/c", "ab"):
        store.put(key, key.encode())

    assert ["a/b", "a/bc/d"] == [entry.key for entry in store.list("a/b")]
    assert ["a/b", "a/bc/d", "a/c"] == [entry.key for entry in store.list("a/")]
    assert [("ab", 2)] == [(entry.key, entry.size) for entry in store.list("ab")]
    assert [] == list(store.list("nothing/here/"))


@given(keys=st.sets(KEYS, max_size=20), prefix=KEYS, cut=st.integers(0, 6))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.parametrize("scheme", STORES)
def test_a_listing_is_in_the_order_of_keys(
    scheme: str, keys: set[str], prefix: str, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # A key that is another key's folder is something that keys.py never makes.
    keys = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    prefix = min(keys, default=prefix)[:cut] or "a"
    store = open_store(STORES[scheme](tmp_path_factory.mktemp("store")))
    for key in keys:
        store.put(key, key.encode())

    assert sorted(key for key in keys if key.startswith(prefix)) == [entry.key for entry in store.list(prefix)]
    assert sorted(keys) == [entry.key for entry in store.list("")]


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.hidden", "a b", "é", "a\0", "a" * 1025])
def test_a_key_that_some_store_could_not_hold_is_refused(store: Store, key: str) -> None:
    with pytest.raises(InternalError):
        store.put(key, b"x")
    with pytest.raises(InternalError):
        store.get(key)
