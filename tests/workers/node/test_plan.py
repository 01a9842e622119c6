"""Plans made from a real store of real bundles."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from functions.errors import NotFound
from functions.names import Ref
from functions.paths import Limits
from functions.records import VersionRecord
from registry.cache import Cache
from registry.catalog import Catalog
from registry.service import Registry
from registry.stores import open_store
from tests.workers.node import bundles
from workers.node.inspector import Sandbox, Task, look
from workers.node.plan import Planner

CALLER = bundles.CONFIG + "instance_group { count: 2 kind: KIND_CPU }\n"
TOML = "[limits]\ntimeout_s = 4.0\nbody_mb = 2\n[calls]\necho = { version = 1 }\n"


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(open_store(f"file://{tmp_path}/store"), time.time)
    registry.catalog.load()
    return registry


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    store = open_store(f"file://{tmp_path}/store")
    return Planner(Catalog(store), Cache(store, tmp_path / "cache"))


def publish(registry: Registry, tmp_path: Path, name: str, source: Path) -> VersionRecord:
    task = Task(source, name, tmp_path / "staging" / name, 0, Limits(), Sandbox())
    task.destination.parent.mkdir(exist_ok=True)
    record, _ = registry.record(look(task), name, "test")
    return record


def test_a_plan_holds_the_whole_closure_and_where_its_files_are(registry: Registry, planner: Planner, tmp_path: Path) -> None:
    publish(registry, tmp_path, "echo", bundles.write(tmp_path / "e"))
    record = publish(registry, tmp_path, "caller", bundles.write(tmp_path / "c", config=CALLER, **{"function.toml": TOML}))
    plan = planner.plan(record.ref)

    assert (Ref("caller", 1), record.digest, 2) == (plan.ref, plan.digest, plan.lanes)
    assert ["caller", "echo"] == [member.name for member in plan.members]
    assert [{"echo": 1}, {}] == [member.lock for member in plan.members]
    assert (4.0, 34.0, 2 << 20) == (plan.timeout_s, plan.kill_s, plan.body_bytes)
    assert all(os.path.isfile(f"{member.version_dir}/model.py") for member in plan.members)
    assert plan.memory_bytes > record.size_bytes


def test_a_version_published_after_the_node_began_is_found(registry: Registry, planner: Planner, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        planner.plan(Ref("echo", 1))
    publish(registry, tmp_path, "echo", bundles.write(tmp_path / "e"))

    assert Ref("echo", 1) == planner.plan(Ref("echo", 1)).ref
