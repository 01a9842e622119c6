"""The catalog: what a call reaches, and how the writes of other processes become visible."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from functions.errors import InternalError, NotFound, StoreUnreachable
from functions.names import LIVE
from functions.records import TagRecord
from registry import keys
from registry.catalog import Catalog
from registry.service import Registry
from registry.stores import open_store
from registry.stores.base import Entry, Store
from tests.registry.conftest import Author, Clock


@pytest.fixture
def served(author: Author, registry: Registry) -> Catalog:
    """``f`` with versions 1 to 3 (1 deleted), live at 2, canary at 3; ``quiet`` with a version and no tag."""
    for text in "abc":
        author.record("f", text)
    author.record("quiet")
    registry.move("f", LIVE, 2, "anna", "r")
    registry.move("f", "canary", 3, "anna", "r")
    registry.delete_version("f", 1)
    return registry.catalog


@pytest.mark.parametrize(("selector", "version"), [(None, 2), ("live", 2), ("canary", 3), ("2", 2), ("3", 3)])
def test_a_name_and_a_selector_reach(served: Catalog, selector: str | None, version: int) -> None:
    reached = served.resolve("f", selector)

    assert version == (reached.version if isinstance(reached, TagRecord) else reached)


UNREACHED = [
    ("nope", None, "Request for unknown model: 'nope' is not found"),
    ("nope", "1", "Request for unknown model: 'nope' is not found"),
    ("quiet", None, "Request for unknown model: 'quiet' has no available versions"),
    *(
        ("f", text, f"Request for unknown model: 'f' version {text} is not found")
        for text in ("1", "4", "0", "02", "-1", "٣", "9" * 30, "beta", "")
    ),
]


@pytest.mark.parametrize(("name", "selector", "message"), UNREACHED)
def test_what_is_not_there_is_told_in_tritons_words(served: Catalog, name: str, selector: str | None, message: str) -> None:
    with pytest.raises(NotFound) as told:
        served.resolve(name, selector)
    assert message == str(told.value)


def test_resolving_never_reads_the_store(served: Catalog, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Catalog(store)
    fresh.load()
    for method in ("get", "list", "size", "fetch"):
        monkeypatch.setattr(type(store), method, None)

    assert 2 == getattr(fresh.resolve("f"), "version", None)
    assert 3 == fresh.resolve("f", "3")
    record = fresh.peek("f", 2)
    assert record is not None
    assert record == fresh.record("f", 2)
    assert served.peek("f", 99) is None


def test_everything_a_tag_reaches_is_in_memory_after_a_refresh(author: Author, store: Store) -> None:
    other = Catalog(store)
    other.load()
    author.publish("z_callee")
    author.publish("a_caller", "text", "z_callee")
    other.refresh()

    assert other.peek("a_caller", 1) is not None
    assert other.peek("z_callee", 1) is not None


def test_a_refresh_sees_and_names_what_others_wrote(author: Author, registry: Registry, store: Store) -> None:
    other = Catalog(store)
    other.load()
    author.publish("f", "one")
    author.record("g")

    assert {"f", "g"} == other.refresh()
    assert set() == other.refresh()
    author.record("f", "two")
    assert {"f"} == other.refresh()
    registry.move("f", LIVE, 2, "anna", "r")
    assert {"f"} == other.refresh()
    assert 2 == other.tag("f", LIVE).version
    registry.put_scale("g", {"min": 1})
    assert {"g"} == other.refresh()
    assert {"min": 1} == other.scale("g")
    registry.delete_version("g", 1)
    assert {"g"} == other.refresh()
    assert [] == other.versions("g")


def test_one_function_can_be_refreshed_alone(author: Author, store: Store) -> None:
    other = Catalog(store)
    author.record("f")
    author.record("fg")

    assert {"f"} == other.refresh("f")
    assert ["f"] == other.functions()


def test_a_refresh_sees_the_writes_of_another_process(store: Store, tmp_path: Path) -> None:
    def write() -> None:
        author = Author(Registry(open_store(store.url), Clock()), tmp_path / "other")
        author.publish("f", "one")
        author.publish("g", "g", "f")
        author.publish("f", "two")

    catalog = Catalog(store)
    catalog.load()
    process = multiprocessing.get_context("fork").Process(target=write)
    process.start()
    process.join(60)

    assert 0 == process.exitcode
    assert {"f", "g"} == catalog.refresh()
    assert (2, 2) == (catalog.tag("f", LIVE).version, catalog.tag("g", LIVE).version)


class Slow:
    """A store in which something happens in the middle of a listing."""

    def __init__(self, store: Store, meanwhile: Callable[[], object], after: str) -> None:
        self._store, self._meanwhile, self._after = store, meanwhile, after

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def list(self, prefix: str) -> Iterator[Entry]:
        for entry in self._store.list(prefix):
            yield entry
            if entry.key.startswith(self._after):
                self._meanwhile()


def test_a_slow_listing_does_not_take_back_what_was_written_meanwhile(author: Author, registry: Registry, store: Store) -> None:
    author.publish("f", "one")
    listed = list(store.list(keys.FUNCTIONS))
    author.publish("f", "two")
    registry.put_scale("f", {"min": 1})

    class Stale(Slow):
        def list(self, prefix: str) -> Iterator[Entry]:  # noqa: ARG002
            return iter(listed)

    registry.catalog._store = Stale(store, lambda: None, "-")  # type: ignore[assignment]

    assert set() == registry.catalog.refresh()
    assert (2, [1, 2], {"min": 1}) == (registry.catalog.tag("f", LIVE).version, registry.catalog.versions("f"), registry.scale("f"))


def test_what_a_lock_names_is_known_even_if_the_listing_had_passed_it(author: Author, store: Store) -> None:
    author.publish("a", "one")
    author.publish("z", "z", "a")

    def meanwhile() -> None:
        author.publish("a", "two")

    catalog = Catalog(Slow(store, meanwhile, keys.function("a") + "versions"))  # type: ignore[arg-type]
    catalog.load()

    assert 2 == catalog.tag("z", LIVE).version
    assert {"a": 2} == {callee: edge.version for callee, edge in catalog.record("z", 2).lock.items()}
    assert [1, 2] == catalog.versions("a")


def test_an_unreachable_store_leaves_the_catalog_as_it_was(served: Catalog, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "away")

    with pytest.raises(StoreUnreachable):
        served.refresh()
    assert 3 == served.resolve("f", "3")


def test_a_strangers_key_is_logged_once_and_left_alone(served: Catalog, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.put("functions/f/README.md", b"hello")
    with caplog.at_level(logging.WARNING):
        served.refresh()
        served.refresh()

    assert ["store_key_unknown key=functions/f/README.md"] == caplog.messages


@pytest.mark.parametrize("data", [b"{", b"[]x", b"\xff", b'{"format": 2}'])
def test_a_damaged_record_is_our_error_and_names_itself(store: Store, data: bytes) -> None:
    store.put(keys.tag("f", LIVE, 1), data)

    with pytest.raises(InternalError):
        Catalog(store).load()


def test_readers_beside_a_writer_see_every_move_whole_and_in_order(author: Author, registry: Registry) -> None:
    author.record("f", "a")
    author.record("f", "b")
    registry.move("f", LIVE, 1, "anna", "r")
    seen: list[list[int]] = [[], [], []]
    done = threading.Event()

    def read(epochs: list[int]) -> None:
        while not done.wait(0.0005):
            reached = registry.catalog.resolve("f")
            assert isinstance(reached, TagRecord)
            if not epochs or epochs[-1] != reached.epoch:
                epochs.append(reached.epoch)

    readers = [threading.Thread(target=read, args=(epochs,)) for epochs in seen]
    for reader in readers:
        reader.start()
    for turn in range(60):
        registry.move("f", LIVE, 1 + turn % 2, "anna", "r")
        registry.catalog.refresh()
    done.set()
    for reader in readers:
        reader.join()

    assert all(epochs == sorted(set(epochs)) for epochs in seen)
