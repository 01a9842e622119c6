"""A publisher, mover or deleter killed -9 at any point leaves a store in which everything that can be seen is whole."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from functions.calls import CallDecl
from functions.names import LIVE, Ref
from registry.blobs import Blobs
from registry.catalog import Catalog
from registry.service import Registry
from registry.stores import open_store
from registry.stores.base import Store
from tests.registry.conftest import Author, Clock
from tests.registry.dying import deaths


def look(store: Store, scratch: Path) -> Catalog:
    """The store as a newcomer sees it, having fetched every file of every version."""
    catalog = Catalog(open_store(store.url))
    catalog.load()
    scratch.mkdir(exist_ok=True)
    for name in catalog.functions():
        for version in catalog.versions(name):
            for member in catalog.closure(Ref(name, version)):
                for file in member.files.values():
                    Blobs(store).fetch(file.sha256, scratch / "blob")
                    (scratch / "blob").unlink()
        for record in catalog.tags(name).values():
            assert record.version in catalog.versions(name)
    return catalog


def test_a_publish_killed_at_any_point_is_recorded_whole_or_not_at_all(author: Author, store: Store, tmp_path: Path) -> None:
    author.publish("callee")
    bundle = author.bundle("f", "text", {"callee": CallDecl()}, files={"1/weights": b"w" * 100_000, "1/empty": b""})

    for _ in deaths(lambda: Registry(open_store(store.url), Clock()).record(bundle, "f", "anna")):
        seen = look(store, tmp_path / "scratch")
        assert ("f" not in seen.functions()) or [1] == seen.versions("f")

    assert [1] == look(store, tmp_path / "scratch").versions("f")


def test_a_move_killed_at_any_point_has_happened_or_not(author: Author, store: Store, tmp_path: Path) -> None:
    author.publish("f", "one")
    author.record("f", "two")

    for _ in deaths(lambda: Registry(open_store(store.url), Clock()).move("f", LIVE, 2, "anna", "r")):
        assert look(store, tmp_path / "scratch").tag("f", LIVE).epoch in (1, 2)

    assert 2 == look(store, tmp_path / "scratch").tag("f", LIVE).version


def test_a_deletion_killed_at_any_point_can_be_repeated(author: Author, store: Store, tmp_path: Path) -> None:
    author.publish("f", "one")
    author.record("f", "two")

    def delete() -> None:
        registry = Registry(open_store(store.url), Clock())
        registry.catalog.load()
        if 2 in registry.catalog.versions("f"):
            registry.delete_version("f", 2)

    for _ in deaths(delete):
        assert look(store, tmp_path / "scratch").versions("f") in ([1], [1, 2])

    assert [1] == look(store, tmp_path / "scratch").versions("f")


PUBLISHER = """
import sys
from pathlib import Path
from registry.service import Registry
from registry.stores import open_store
from tests.registry.conftest import Author, Clock
author = Author(Registry(open_store(sys.argv[1]), Clock()), Path(sys.argv[2]))
author.publish("callee", "c")
print("started", flush=True)
for number in range(1_000_000):
    author.publish("callee", f"{sys.argv[3]} {number % 5}")
    author.publish("f", f"{sys.argv[3]} {number}" * 20_000, "callee")
    print(number, flush=True)
"""


def test_publishers_killed_while_they_are_busy_leave_whole_versions_with_consecutive_numbers(store: Store, tmp_path: Path) -> None:
    for round_ in range(3):
        command = [sys.executable, "-c", PUBLISHER, store.url, str(tmp_path / "bundles"), str(round_)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as publisher:
            assert publisher.stdout is not None
            for _ in range(2 + round_ * 2):
                assert publisher.stdout.readline(), "the publisher ended by itself"
            publisher.send_signal(signal.SIGKILL)

        seen = look(store, tmp_path / "scratch")
        for name in seen.functions():
            assert list(range(1, seen.last(name) + 1)) == seen.versions(name)
            epochs = sorted(move.epoch for move in seen.history(name, LIVE))
            assert list(range(1, len(epochs) + 1)) == epochs
    assert seen.last("f") >= 3
