"""Recording, tagging, re-locking and deleting, through the registry and a real store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from functions.calls import CallDecl
from functions.errors import BundleRefused, Conflict, InvalidRequest, NotFound, PreconditionFailed
from functions.names import LIVE, Ref
from functions.records import Target, VersionRecord
from registry import keys
from registry.service import Registry
from registry.stores.base import Store
from tests.registry.conftest import Author, Clock

ENSEMBLE = {
    "platform": "ensemble",
    "backend": "",
    "ensemble_scheduling": {
        "step": [{"model_name": "step", "model_version": -1, "input_map": {"X": "X"}, "output_map": {"Y": "Y"}}],
    },
}


def test_versions_are_numbered_from_one(author: Author) -> None:
    assert [1, 2, 3] == [author.record("f", text).version for text in ("a", "b", "c")]


def test_the_same_content_and_lock_is_the_same_version(author: Author, registry: Registry) -> None:
    first, created = registry.record(author.bundle("f", "a"), "f", "anna")
    author.record("f", "b")
    again, created_again = registry.record(author.bundle("f", "a"), "f", "ben")

    assert (True, False) == (created, created_again)
    assert first == again
    assert [1, 2] == registry.catalog.versions("f")


def test_a_record_says_what_was_recorded(author: Author, store: Store) -> None:
    author.publish("callee")
    record = author.record("f", "text", "callee")
    stored = VersionRecord.from_json(json.loads(store.get(keys.version("f", 1))))

    assert record == stored
    assert ("f", 1, "upload", "anna", "2023-11-14T22:13:20.000Z") == (
        record.name,
        record.version,
        record.origin,
        record.by,
        record.created,
    )
    assert {"config.pbtxt", "1/model.py"} == set(record.files)
    assert {"callee": 1} == {callee: edge.version for callee, edge in record.lock.items()}


def test_all_files_of_a_recorded_version_are_in_the_store(author: Author, registry: Registry, tmp_path: Path) -> None:
    record = author.record("f", "text")
    for number, (path, file) in enumerate(record.files.items()):
        registry.fetch_blob(file.sha256, tmp_path / str(number))

        assert {"config.pbtxt": b"f", "1/model.py": b"text"}[path] == (tmp_path / str(number)).read_bytes()


def test_another_callee_version_makes_another_version(author: Author) -> None:
    author.publish("callee", "one")
    first = author.record("f", "text", "callee")
    author.publish("callee", "two")
    second = author.record("f", "text", "callee")

    assert (1, 2) == (first.version, second.version)
    assert first.content == second.content
    assert first.digest != second.digest


def test_functions_of_one_release_are_locked_to_each_other(author: Author) -> None:
    author.publish("callee", "one")
    two = author.record("callee", "two")

    assert 2 == author.record("f", "text", "callee", with_={"callee": two.version}).lock["callee"].version


def test_a_missing_callee_is_refused_and_leaves_nothing(author: Author, registry: Registry) -> None:
    with pytest.raises(BundleRefused, match="calls 'nobody'"):
        author.record("f", "text", "nobody")
    assert [] == registry.catalog.functions()
    assert [] == list(registry.store.list(""))


def test_an_ensemble_that_does_not_fit_its_callee_is_refused(author: Author, registry: Registry) -> None:
    author.publish("step")
    fits = author.bundle("graph", calls={"step": CallDecl()}, **ENSEMBLE)
    unfit = author.bundle("graph", calls={"step": CallDecl()}, **ENSEMBLE, input=[{"name": "X", "data_type": "TYPE_FP32", "dims": [4]}])

    assert 1 == registry.record(fits, "graph", "anna")[0].version
    with pytest.raises(BundleRefused, match="'X'"):
        registry.record(unfit, "graph", "anna")


def test_a_function_that_would_reach_itself_is_refused(author: Author) -> None:
    author.publish("f", "one")
    author.publish("g", "g", "f")

    with pytest.raises(BundleRefused, match="calls itself"):
        author.record("f", "two", "g")


@pytest.mark.parametrize("path", ["7", "../evil", "/etc/passwd", "1/../../evil", "a//b", "./a"])
def test_a_path_that_could_leave_its_place_is_refused(author: Author, registry: Registry, path: str) -> None:
    bundle = author.bundle("f")
    files = {**bundle.files, path: bundle.files["config.pbtxt"]}

    with pytest.raises(BundleRefused):
        registry.record(type(bundle)(**{**{field: getattr(bundle, field) for field in bundle.__slots__}, "files": files}), "f", "anna")


@pytest.mark.parametrize("name", ["", "../f", "f/g", ".f", "f" * 129])
def test_a_bad_name_is_refused(author: Author, registry: Registry, name: str) -> None:
    with pytest.raises(InvalidRequest):
        registry.record(author.bundle("f"), name, "anna")


def test_a_dependent_follows_and_comes_back(author: Author, registry: Registry) -> None:
    author.publish("f", "one")
    author.publish("g", "g", "f")
    author.publish("f", "two")

    assert {"f": 2, "g": 2} == author.live("f", "g")
    assert "relock" == registry.catalog.record("g", 2).origin

    author.release({"f": registry.rollback_version("f")}, held=True)

    assert {"f": 1, "g": 1} == author.live("f", "g")
    assert [1, 2] == registry.catalog.versions("g")


def test_all_moves_of_one_release_carry_its_id(author: Author, registry: Registry) -> None:
    author.publish("f", "one")
    author.publish("g", "g", "f")
    release = author.release({"f": author.record("f", "two").version})

    assert [release, release] == [registry.catalog.tag(name, LIVE).release for name in ("f", "g")]


def test_a_dependent_whose_graph_no_longer_fits_is_refused_and_the_plan_goes_on_without_it(author: Author, registry: Registry) -> None:
    author.publish("step")
    graph, _ = registry.record(author.bundle("graph", calls={"step": CallDecl()}, **ENSEMBLE), "graph", "anna")
    author.release({"graph": graph.version})
    author.publish("other", "o", "step")
    wider = author.bundle("step", "two", output=[{"name": "Y", "data_type": "TYPE_FP64", "dims": [16]}])
    moves = {"step": registry.record(wider, "step", "anna")[0].version}
    refused, followed = registry.plan(moves)

    with pytest.raises(BundleRefused, match="FP64"):
        registry.relock(refused, "anna")
    assert ["stays", ""] == [step.passed for step in registry.plan(moves, stay={"graph"})]
    assert 2 == registry.relock(followed, "anna").version


def test_a_step_that_is_passed_by_or_comes_too_early_is_refused(author: Author, registry: Registry) -> None:
    for name, *callees in (("f",), ("g", "f"), ("h", "g")):
        author.publish(name, "one", *callees)
    two = author.record("f", "two").version
    early = registry.plan({"f": two})[1]
    registry.move("g", LIVE, 1, "anna", "r", held=True)
    held = registry.plan({"f": two})[0]

    with pytest.raises(Conflict, match="cannot follow 'g' yet"):
        registry.relock(early, "anna")
    with pytest.raises(Conflict, match="held"):
        registry.relock(held, "anna")


def test_two_versions_of_one_function_may_share_a_closure(author: Author, registry: Registry) -> None:
    author.publish("f", "one")
    registry.record(author.bundle("old", calls={"f": CallDecl(None, 1)}), "old", "anna")
    registry.move("old", LIVE, 1, "anna", "r")
    author.publish("f", "two")
    author.publish("top", "t", "f", "old")

    closure = [record.ref for record in registry.catalog.closure(Ref("top", 1))]
    assert [Ref("top", 1), Ref("f", 2), Ref("old", 1), Ref("f", 1)] == closure


def test_a_closure_names_a_shared_callee_once(author: Author, registry: Registry) -> None:
    for name, *callees in (("base",), ("left", "base"), ("right", "base"), ("top", "left", "right")):
        author.publish(name, "one", *callees)

    assert ["top", "left", "base", "right"] == [record.name for record in registry.catalog.closure(Ref("top", 1))]


# Tags.


def test_a_tag_keeps_its_history(author: Author, registry: Registry, clock: Clock) -> None:
    for text in "abc":
        author.record("f", text)
    for version in (1, 3, 2):
        clock.now += 1
        registry.move("f", LIVE, version, "anna", f"release {version}", reason="promote")

    assert [(3, 2, "release 2"), (2, 3, "release 3"), (1, 1, "release 1")] == [
        (move.epoch, move.version, move.release) for move in registry.catalog.history("f", LIVE)
    ]


def test_a_move_names_the_epoch_it_expects_or_fails(author: Author, registry: Registry) -> None:
    author.record("f", "a")
    author.record("f", "b")
    first = registry.move("f", LIVE, 1, "anna", "r", expect=0)

    with pytest.raises(PreconditionFailed, match="at epoch 1, not 0"):
        registry.move("f", LIVE, 2, "anna", "r", expect=0)
    with pytest.raises(PreconditionFailed, match="at epoch 1, not 7"):
        registry.move("f", LIVE, 2, "anna", "r", expect=7)
    assert 2 == registry.move("f", LIVE, 2, "anna", "r", expect=first.epoch).epoch


def test_a_move_to_the_same_place_changes_nothing_unless_it_ends_a_hold(author: Author, registry: Registry) -> None:
    author.record("f", "a")
    held = registry.move("f", LIVE, 1, "anna", "r", held=True)

    assert held == registry.move("f", LIVE, 1, "ben", "r2", held=True)
    assert (2, False) == ((free := registry.move("f", LIVE, 1, "ben", "r2")).epoch, free.held)


def test_a_tag_may_be_split_between_versions(author: Author, registry: Registry) -> None:
    author.record("f", "a")
    author.record("f", "b")
    record = registry.move("f", LIVE, [Target(1, 0.1), Target(2, 0.9)], "anna", "r")

    assert (2, {1, 2}) == (record.version, record.versions)


@pytest.mark.parametrize("targets", [[], [Target(1, 0.0)], [Target(1, -1.0)], [Target(1), Target(1)], [Target(1, float("nan"))]])
def test_targets_that_make_no_sense_are_refused(author: Author, registry: Registry, targets: list[Target]) -> None:
    author.record("f", "a")

    with pytest.raises(InvalidRequest):
        registry.move("f", LIVE, targets, "anna", "r")


def test_a_tag_cannot_point_at_what_does_not_exist(author: Author, registry: Registry) -> None:
    author.record("f", "a")

    with pytest.raises(NotFound, match="Request for unknown model: 'f' version 2 is not found"):
        registry.move("f", LIVE, 2, "anna", "r")
    with pytest.raises(NotFound, match="Request for unknown model: 'g' is not found"):
        registry.move("g", LIVE, 1, "anna", "r")
    with pytest.raises(InvalidRequest):
        registry.move("f", "../x", 1, "anna", "r")
    assert {} == registry.catalog.tags("f")


def test_a_rollback_goes_to_what_was_before_or_where_it_is_told(author: Author, registry: Registry) -> None:
    for text in "abc":
        author.record("f", text)
    with pytest.raises(NotFound, match="no tag 'live'"):
        registry.rollback_version("f")
    registry.move("f", LIVE, 2, "anna", "r")
    with pytest.raises(Conflict, match="never pointed at anything but version 2"):
        registry.rollback_version("f")
    registry.move("f", LIVE, 3, "anna", "r")
    registry.move("f", LIVE, 3, "anna", "r", held=True)
    registry.move("f", "stable", 1, "anna", "r")

    assert 2 == registry.rollback_version("f")
    assert 1 == registry.rollback_version("f", to="stable")
    assert 1 == registry.rollback_version("f", to=1)
    assert 1 == registry.rollback_version("f", to="1")
    for to in (9, "9", "nowhere"):
        with pytest.raises(NotFound):
            registry.rollback_version("f", to=to)
    with pytest.raises(InvalidRequest):
        registry.rollback_version("f", to="01")


# Deletion.


def test_a_deleted_version_is_gone_and_its_number_is_never_given_again(author: Author, registry: Registry) -> None:
    for text in "abc":
        author.record("f", text)
    registry.delete_version("f", 3, "anna")
    registry.delete_version("f", 1, "anna")

    assert [2] == registry.catalog.versions("f")
    with pytest.raises(NotFound, match="'f' version 3 is not found"):
        registry.catalog.record("f", 3)
    with pytest.raises(NotFound):
        registry.delete_version("f", 3)
    assert 4 == author.record("f", "c").version


def test_a_version_that_a_tag_reaches_cannot_be_deleted(author: Author, registry: Registry) -> None:
    author.publish("f", "one")
    author.publish("g", "g", "f")
    author.publish("top", "t", "g")
    author.release({"f": author.record("f", "two").version})
    registry.move("top", "stable", 1, "anna", "r")

    with pytest.raises(Conflict, match="the tag 'live' points at it"):
        registry.delete_version("f", 2)
    with pytest.raises(Conflict, match="top@1, which the tag 'stable' points at, is locked to it"):
        registry.delete_version("f", 1)
    registry.move("top", "stable", 2, "anna", "r")
    registry.delete_version("f", 1)
    assert [2] == registry.catalog.versions("f")


def test_a_tag_cannot_move_to_what_reaches_a_deleted_version(author: Author, registry: Registry) -> None:
    author.publish("f", "one")
    author.record("g", "g", "f")
    author.publish("f", "two")
    registry.delete_version("f", 1)

    with pytest.raises(NotFound, match="'f' version 1 is not found"):
        registry.move("g", LIVE, 1, "anna", "r")


def test_a_move_gives_way_to_a_deletion_that_is_being_decided(author: Author, registry: Registry, store: Store, clock: Clock) -> None:
    author.publish("f", "one")
    author.record("f", "two")
    store.put(keys.deleting("f", 2, "abc"), b"")
    clock.now = next(store.list(keys.deleting("f", 2))).modified_s + 1

    with pytest.raises(Conflict, match="f@2 is being deleted"):
        registry.move("f", LIVE, 2, "anna", "r")
    assert (1, 3, "undone") == ((live := registry.catalog.tag("f", LIVE)).version, live.epoch, live.reason)


def test_a_deletion_whose_process_died_is_no_obstacle_for_long(author: Author, registry: Registry, store: Store, clock: Clock) -> None:
    author.record("f", "one")
    store.put(keys.deleting("f", 1, "abc"), b"")
    clock.now = next(store.list(keys.deleting("f", 1))).modified_s + 3600

    assert 1 == registry.move("f", LIVE, 1, "anna", "r").version


# What overrides [scale].


def test_scale_is_overridden_until_it_is_cleared(author: Author, registry: Registry) -> None:
    author.publish("f")
    registry.put_scale("f", {"min": 1, "max": 4})

    assert {"min": 1, "max": 4} == registry.scale("f")
    author.publish("f", "two")
    assert {"min": 1, "max": 4} == registry.scale("f")
    registry.clear_scale("f")
    assert {} == registry.scale("f")
    with pytest.raises(NotFound):
        registry.put_scale("nobody", {"min": 1})


def test_a_function_can_be_described(author: Author, registry: Registry) -> None:
    author.publish("f", "one")
    author.publish("g", "g", "f")
    author.publish("f", "two")
    registry.put_scale("g", {"min": 1})
    shown = registry.describe("g")

    assert ("g", {"min": 1}, [2, 1]) == (shown["name"], shown["scale"], [version["version"] for version in shown["versions"]])
    assert ({"f": 2}, ["live"], "relock") == tuple(shown["versions"][0][key] for key in ("lock", "tags", "origin"))
    assert (2, 2, False, "relock") == tuple(shown["tags"]["live"][key] for key in ("version", "epoch", "held", "reason"))
    assert shown == json.loads(json.dumps(shown))
