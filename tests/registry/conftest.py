"""A registry over an empty file store, and bundles to record in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from functions.bundle import Inspected
from functions.calls import CallDecl
from functions.names import LIVE
from functions.records import File, VersionRecord
from registry.service import Registry
from registry.stores import open_store
from registry.stores.base import Store


@dataclass
class Clock:
    """Time stands still until it is moved."""

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def config(name: str, **more: Any) -> dict[str, Any]:
    """A normalised configuration: one FP32 tensor of 16 in, one out."""
    tensor = {"data_type": "TYPE_FP32", "dims": [16]}
    return {
        "name": name,
        "backend": "python",
        "platform": "",
        "max_batch_size": 0,
        "input": [{"name": "X", **tensor}],
        "output": [{"name": "Y", **tensor}],
        **more,
    }


@dataclass
class Author:
    """Writes bundles and records them."""

    registry: Registry
    directory: Path

    def bundle(
        self,
        name: str,
        text: str = "1",
        calls: Mapping[str, CallDecl] | None = None,
        files: Mapping[str, bytes] | None = None,
        author_dir: str = "1",
        **more: Any,
    ) -> Inspected:
        """A bundle whose content differs with ``text``, as an inspection would report it."""
        staging = self.directory / uuid4().hex
        contents = {"config.pbtxt": name.encode(), "1/model.py": text.encode(), **(files or {})}
        for path, data in contents.items():
            (staging / path).parent.mkdir(parents=True, exist_ok=True)
            (staging / path).write_bytes(data)
        return Inspected(
            files={path: File(hashlib.sha256(data).hexdigest(), len(data), path.endswith(".sh")) for path, data in contents.items()},
            config=config(name, **more),
            manifest={},
            author_dir=author_dir,
            calls=calls or {},
            environment="",
            warnings=(),
            staging=staging,
        )

    def record(self, name: str, text: str = "1", *callees: str, with_: Mapping[str, int] | None = None) -> VersionRecord:
        """Record a bundle that calls ``callees`` by their live tags."""
        return self.registry.record(self.bundle(name, text, {callee: CallDecl() for callee in callees}), name, "anna", with_)[0]

    def publish(self, name: str, text: str = "1", *callees: str) -> VersionRecord:
        """Record it and make it live."""
        record = self.record(name, text, *callees)
        self.release({name: record.version})
        return record

    def release(self, moves: Mapping[str, int], tag: str = LIVE, **how: Any) -> str:
        """Move tags and all their dependents, as one release."""
        release = uuid4().hex
        steps = [step for step in self.registry.plan(moves, tag) if not step.passed]
        followers = [(step.name, step.tag, self.registry.relock(step, "anna").version) for step in steps]
        for name, version in moves.items():
            self.registry.move(name, tag, version, "anna", release, reason="promote", **how)
        for name, follower_tag, version in followers:
            self.registry.move(name, follower_tag, version, "anna", release, reason="relock")
        return release

    def live(self, *names: str) -> dict[str, int]:
        """Where the live tags point."""
        return {name: self.registry.catalog.tag(name, LIVE).version for name in names}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}/store")


@pytest.fixture
def registry(store: Store, clock: Clock) -> Registry:
    return Registry(store, clock)


@pytest.fixture
def author(registry: Registry, tmp_path: Path) -> Author:
    return Author(registry, tmp_path / "bundles")
