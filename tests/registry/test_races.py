"""Many publishers and movers at once, in threads and in processes."""

from __future__ import annotations

import multiprocessing
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from functions.errors import Conflict, InternalError, NotFound, PreconditionFailed
from functions.names import LIVE
from registry.catalog import Catalog
from registry.service import Registry
from registry.stores import open_store
from registry.stores.base import Store
from tests.registry.conftest import Author, Clock

FORK = multiprocessing.get_context("fork")
CONTENTS = 12
"""Different contents that 32 threads and 4 processes publish, all of them at once."""


def test_32_threads_and_4_processes_share_out_consecutive_numbers(author: Author, store: Store, tmp_path: Path) -> None:
    start, answers = FORK.Barrier(4 + 1), FORK.SimpleQueue()

    def publish_all(number: int) -> None:
        mine = Author(Registry(open_store(store.url), Clock()), tmp_path / f"process {number}")
        start.wait()
        answers.put([(str(text), mine.record("f", str(text)).version) for text in range(CONTENTS)])

    processes = [FORK.Process(target=publish_all, args=(number,)) for number in range(4)]
    for process in processes:
        process.start()
    together = threading.Barrier(32, start.wait)

    def publish(number: int) -> tuple[str, int]:
        together.wait()
        text = str(number % CONTENTS)
        return text, author.record("f", text).version

    with ThreadPoolExecutor(32) as pool:
        got = list(pool.map(publish, range(32)))
    for _ in processes:
        got += answers.get()
    for process in processes:
        process.join(60)

    versions = defaultdict(set)
    for text, version in got:
        versions[text].add(version)
    assert list(range(1, CONTENTS + 1)) == sorted(version for given in versions.values() for version in given)
    catalog = Catalog(store)
    catalog.load()
    assert list(range(1, CONTENTS + 1)) == catalog.versions("f")
    assert CONTENTS == len({catalog.record("f", version).digest for version in catalog.versions("f")})


def test_of_racing_moves_that_expect_the_same_epoch_one_wins(registry: Registry, author: Author) -> None:
    for text in "abcdefgh":
        author.record("f", text)
    together = threading.Barrier(8)

    def move(version: int) -> int | None:
        together.wait()
        try:
            return registry.move("f", LIVE, version, "anna", "r", expect=0).version
        except PreconditionFailed:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [version for version in pool.map(move, range(1, 9)) if version is not None]

    assert [registry.catalog.tag("f", LIVE).version] == won


def test_racing_moves_without_expectation_all_become_history(registry: Registry, author: Author, store: Store) -> None:
    for text in "ab":
        author.record("f", text)

    def move_often(first: int) -> None:
        mine = Registry(open_store(store.url), Clock())
        mine.catalog.load()
        for turn in range(20):
            mine.move("f", LIVE, 1 + (first + turn) % 2, str(first), f"{first}-{turn}")

    processes = [FORK.Process(target=move_often, args=(first,)) for first in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    registry.catalog.refresh()
    history = registry.catalog.history("f", LIVE)

    assert [0, 0, 0] == [process.exitcode for process in processes]
    by_epoch = sorted(history, key=lambda move: move.epoch)
    assert list(range(1, len(history) + 1)) == [move.epoch for move in by_epoch]
    assert all(one.version != other.version for one, other in pairwise(by_epoch))


def test_a_version_is_never_both_deleted_and_tagged(registry: Registry, author: Author, store: Store) -> None:
    author.record("f", "keep")
    registry.move("f", LIVE, 1, "anna", "r")
    for round_ in range(15):
        version = author.record("f", f"round {round_}").version
        other = Registry(open_store(store.url), registry._clock)
        other.catalog.load()
        registry._clock.now = next(iter(store.list(""))).modified_s  # type: ignore[attr-defined]
        together = threading.Barrier(2)

        def delete(registry: Registry = other, version: int = version, together: threading.Barrier = together) -> bool:
            together.wait()
            try:
                registry.delete_version("f", version)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(1) as pool:
            deleting = pool.submit(delete)
            together.wait()
            try:
                registry.move("f", LIVE, version, "anna", "r")
                moved = True
            except (Conflict, NotFound):
                moved = False
            deleted = deleting.result()

        seen = Catalog(store)
        seen.load()
        assert not (moved and deleted)
        assert seen.tag("f", LIVE).version in seen.versions("f")


def test_a_store_that_hides_what_it_holds_is_our_error_and_no_endless_loop(
    author: Author, registry: Registry, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    author.publish("f", "one")
    monkeypatch.setattr(store, "create", lambda *_: False)

    with pytest.raises(InternalError, match="does not list it"):
        author.record("f", "two")
    with pytest.raises(InternalError, match="does not list it"):
        registry.move("f", "canary", 1, "anna", "r")
    with pytest.raises(InternalError, match="does not list it"):
        registry.put_scale("f", {"min": 1})
