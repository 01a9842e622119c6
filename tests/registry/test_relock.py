"""Re-locking, as a game on a small world without a store: any graph, any order of releases, holds and rollbacks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from functions.names import LIVE
from functions.records import Locked, TagRecord, Target, VersionRecord, version_digest
from registry.relock import Pointer, Relock, plan

CANARY = "canary"


class World:
    """Versions and tags in two dictionaries, and releases as a rollout does them."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int], VersionRecord] = {}
        self.pointers: dict[Pointer, TagRecord] = {}

    def upload(self, name: str, text: str, **callees: Locked | str) -> VersionRecord:
        """A version that calls ``callees``: locked as given, or by following the tag that is named."""
        lock = {}
        for callee, edge in callees.items():
            if isinstance(edge, str):
                version = self.pointers[Pointer(callee, edge)].version
                edge = Locked(version, self.records[callee, version].digest, edge)
            lock[callee] = edge
        return self.keep(VersionRecord(name, 0, version_digest(text, lock, ""), text, {}, {}, {}, "1", lock))

    def keep(self, draft: VersionRecord) -> VersionRecord:
        existing = self.find(draft.name, draft.digest)
        if existing is not None:
            return existing
        record = replace(draft, version=1 + sum(name == draft.name for name, _ in self.records))
        self.records[record.name, record.version] = record
        return record

    def find(self, name: str, digest: str) -> VersionRecord | None:
        return next((record for record in self.records.values() if (record.name, record.digest) == (name, digest)), None)

    def plan(self, moves: dict[str, int], tag: str = LIVE, stay: Collection[str] = ()) -> list[Relock]:
        digests = {Pointer(name, tag): self.records[name, version].digest for name, version in moves.items()}
        return plan(digests, self.pointers, lambda name, version: self.records[name, version], self.find, stay)

    def release(self, moves: dict[str, int], tag: str = LIVE, held: bool = False, stay: Collection[str] = ()) -> list[Relock]:
        steps = self.plan(moves, tag, stay)
        for step in steps:
            if not step.passed:
                self.point(step.name, step.tag, self.relock(step).version)
        for name, version in moves.items():
            self.point(name, tag, version, held)
        return steps

    def relock(self, step: Relock) -> VersionRecord:
        base = self.records[step.name, step.base]
        lock = dict(base.lock)
        for callee, digest in step.edges.items():
            target = self.find(callee, digest)
            assert target is not None, "a step came before the one it rests on"
            lock[callee] = replace(lock[callee], version=target.version, digest=digest)
        record = self.keep(replace(base, digest=version_digest(base.content, lock, ""), lock=lock, origin="relock"))
        assert step.digest == record.digest
        assert step.version in (None, record.version)
        return record

    def point(self, name: str, tag: str, version: int, held: bool = False) -> None:
        epoch = self.pointers[Pointer(name, tag)].epoch + 1 if Pointer(name, tag) in self.pointers else 1
        self.pointers[Pointer(name, tag)] = TagRecord(name, tag, epoch, (Target(version),), "", "", "", held)

    def publish(self, name: str, text: str, **callees: Locked | str) -> int:
        version = self.upload(name, text, **callees).version
        self.release({name: version})
        return version

    def live(self, *names: str) -> dict[str, int]:
        return {name: self.pointers[Pointer(name, LIVE)].version for name in names}

    def locked(self, name: str, version: int) -> dict[str, int]:
        return {callee: edge.version for callee, edge in self.records[name, version].lock.items()}


@pytest.fixture
def world() -> World:
    return World()


def names(steps: list[Relock]) -> list[str]:
    return [step.name for step in steps]


def test_a_dependent_follows_its_callee_and_comes_back_to_its_old_version(world: World) -> None:
    world.publish("f", "one")
    world.publish("g", "g", f=LIVE)
    world.publish("f", "two")

    assert {"f": 2, "g": 2} == world.live("f", "g")
    assert {"f": 2} == world.locked("g", 2)

    world.release({"f": 1})

    assert {"f": 1, "g": 1} == world.live("f", "g")
    assert 4 == len(world.records)


def test_a_move_to_where_the_tag_is_moves_nobody(world: World) -> None:
    world.publish("f", "one")
    world.publish("g", "g", f=LIVE)

    assert [] == world.plan({"f": 1})


def test_repeating_a_release_completes_one_that_was_interrupted(world: World) -> None:
    world.publish("f", "one")
    world.publish("g", "g", f=LIVE)
    two = world.upload("f", "two").version
    world.point("f", LIVE, two)

    assert ["g"] == names(world.release({"f": two}))
    assert {"f": 2} == world.locked("g", world.live("g")["g"])


def test_a_chain_follows_callees_first(world: World) -> None:
    world.publish("d", "one")
    world.publish("c", "c", d=LIVE)
    world.publish("b", "b", c=LIVE)
    world.publish("a", "a", b=LIVE)
    two = world.upload("d", "two").version

    assert ["c", "b", "a"] == names(world.release({"d": two}))


def test_the_top_of_a_diamond_follows_once_with_both_sides_new(world: World) -> None:
    world.publish("base", "one")
    world.publish("left", "l", base=LIVE)
    world.publish("right", "r", base=LIVE)
    world.publish("top", "t", left=LIVE, right=LIVE)
    steps = world.release({"base": world.upload("base", "two").version})

    assert ["left", "right", "top"] == names(steps)
    assert 2 == max(version for name, version in world.records if name == "top")
    assert {"left": 2, "right": 2} == world.locked("top", 2)


def test_a_dependent_that_calls_two_moved_functions_follows_once(world: World) -> None:
    world.publish("f", "one")
    world.publish("k", "one")
    world.publish("g", "g", f=LIVE, k=LIVE)
    steps = world.release({"f": world.upload("f", "two").version, "k": world.upload("k", "two").version})

    assert ["g"] == names(steps)
    assert {"f": 2, "k": 2} == world.locked("g", world.live("g")["g"])


def test_a_function_of_the_release_itself_is_no_dependent(world: World) -> None:
    world.publish("f", "one")
    world.publish("g", "g", f=LIVE)
    f = world.upload("f", "two")
    g = world.upload("g", "new g", f=Locked(f.version, f.digest))

    assert [] == world.plan({"f": f.version, "g": g.version})


def test_a_pinned_call_never_follows(world: World) -> None:
    world.publish("f", "one")
    digest = world.records["f", 1].digest
    world.publish("g", "g", f=Locked(1, digest, None))

    assert [] == world.plan({"f": world.upload("f", "two").version})


def test_a_held_function_is_passed_by_and_so_is_what_hangs_on_it_alone(world: World) -> None:
    world.publish("f", "one")
    world.publish("g", "g", f=LIVE)
    world.publish("h", "h", g=LIVE)
    world.point("g", LIVE, 1, held=True)
    steps = world.release({"f": world.upload("f", "two").version})

    assert [("g", "held")] == [(step.name, step.passed) for step in steps]
    assert {"g": 1, "h": 1} == world.live("g", "h")


def test_who_follows_a_held_function_and_a_moved_one_follows_the_moved_one(world: World) -> None:
    world.publish("f", "one")
    world.publish("g", "g", f=LIVE)
    world.publish("h", "h", f=LIVE, g=LIVE)
    world.point("g", LIVE, 1, held=True)
    world.publish("f", "two")

    assert {"f": 2, "g": 1} == world.locked("h", world.live("h")["h"])


def test_a_dependent_that_cannot_follow_stays_and_the_others_are_planned_as_before(world: World) -> None:
    world.publish("f", "one")
    world.publish("g", "g", f=LIVE)
    world.publish("h", "h", f=LIVE)
    two = world.upload("f", "two").version
    all_of_them, without_g = world.plan({"f": two}), world.plan({"f": two}, stay={"g"})

    assert [("g", "stays"), ("h", "")] == [(step.name, step.passed) for step in without_g]
    assert all_of_them[1] == without_g[1]


def test_a_dependent_kept_from_one_move_keeps_that_when_it_follows_another(world: World) -> None:
    world.publish("f", "one")
    world.publish("k", "one")
    world.publish("g", "g", f=LIVE, k=LIVE)
    world.release({"k": world.upload("k", "two").version}, stay={"g"})
    world.publish("f", "two")

    assert {"f": 2, "k": 1} == world.locked("g", world.live("g")["g"])


def test_a_split_dependent_is_left_to_its_operator(world: World) -> None:
    world.publish("f", "one")
    world.publish("g", "g", f=LIVE)
    world.upload("g", "other", f=LIVE)
    world.pointers[Pointer("g", LIVE)] = TagRecord("g", LIVE, 2, (Target(1, 0.9), Target(2, 0.1)), "", "", "")

    assert ["split"] == [step.passed for step in world.plan({"f": world.upload("f", "two").version})]


def test_two_versions_of_one_function_share_a_closure_and_both_follow(world: World) -> None:
    world.publish("leaf", "one")
    world.publish("f", "f", leaf=LIVE)
    world.publish("left", "l", f=Locked(1, world.records["f", 1].digest, None), leaf=LIVE)
    world.publish("f", "f two", leaf=LIVE)
    world.publish("top", "t", left=LIVE, f=LIVE)

    assert {"f": 1, "leaf": 1} == world.locked("left", 1)
    assert {"f": 2, "left": 1} == world.locked("top", 1)

    world.publish("leaf", "two")

    assert {"f": 1, "leaf": 2} == world.locked("left", world.live("left")["left"])
    assert {"f": 3, "left": 2} == world.locked("top", world.live("top")["top"])
    assert {"leaf": 2} == world.locked("f", 3)


def test_live_follows_a_canary_where_it_asked_to_and_other_tags_follow_their_own_kind(world: World) -> None:
    world.publish("f", "one")
    world.point("f", CANARY, 1)
    world.publish("g", "g", f=CANARY)
    world.point("g", CANARY, 1)
    world.point("g", "stable", 1)
    world.publish("h", "h", f=LIVE)
    world.point("h", CANARY, 1)
    steps = world.release({"f": world.upload("f", "two").version}, CANARY)

    assert [("g", CANARY), ("g", LIVE)] == [(step.name, step.tag) for step in steps]
    assert 1 == world.pointers[Pointer("g", "stable")].version
    assert 1 == world.live("h")["h"]


def test_a_change_runs_around_a_ring_once(world: World) -> None:
    world.publish("leaf", "one")
    world.publish("a", "a before b", leaf=LIVE)
    world.publish("b", "b", a=LIVE)
    b = world.records["b", 1]
    world.release({"a": world.upload("a", "a", leaf=LIVE, b=Locked(1, b.digest, LIVE, shared=True)).version})
    steps = world.release({"leaf": world.upload("leaf", "two").version})

    assert ["a", "b"] == names(steps)


class Releases(RuleBasedStateMachine):
    """Six functions; each may call those before it. Everything that may happen to them, in any order."""

    contents = Bundle("contents")

    @initialize(target=contents)
    def begin(self) -> object:
        self.world = World()
        self.serial = 0
        for name in "abcdef":
            self.world.publish(name, f"{name} first")
        return multiple()

    @rule(target=contents, name=st.sampled_from("abcdef"), data=st.data())
    def write(self, name: str, data: st.DataObject) -> tuple[str, int]:
        """Somebody uploads a version; no tag moves."""
        self.serial += 1
        earlier = [other for other in "abcdef" if other < name]
        callees = data.draw(st.sets(st.sampled_from(earlier), max_size=3)) if earlier else set()
        edges: dict[str, Locked | str] = dict.fromkeys(callees, LIVE)
        for callee in callees:
            if data.draw(st.booleans()) and data.draw(st.booleans()):
                version = self.world.live(callee)[callee]
                edges[callee] = Locked(version, self.world.records[callee, version].digest, None)
        return name, self.world.upload(name, f"{name} {self.serial}", **edges).version

    @rule(content=contents)
    def promote(self, content: tuple[str, int]) -> None:
        name, version = content
        self.check_release({name: version})

    @rule(content=consumes(contents), other=contents)
    def promote_together(self, content: tuple[str, int], other: tuple[str, int]) -> None:
        assume(content[0] != other[0])
        self.check_release(dict([content, other]))

    @rule(content=contents)
    def roll_back_and_hold(self, content: tuple[str, int]) -> None:
        name, version = content
        self.check_release({name: version}, held=True)

    @rule(name=st.sampled_from("abcdef"))
    def release_the_hold(self, name: str) -> None:
        self.check_release(self.world.live(name))

    @rule(content=contents, stay=st.sets(st.sampled_from("abcdef"), max_size=2))
    def promote_without_some(self, content: tuple[str, int], stay: set[str]) -> None:
        name, version = content
        self.check_release({name: version}, stay=stay)

    def check_release(self, moves: dict[str, int], held: bool = False, stay: Collection[str] = ()) -> None:
        world = self.world
        live, holds = world.live(*"abcdef"), {name for name in "abcdef" if world.pointers[Pointer(name, LIVE)].held}
        steps = world.release(moves, held=held, stay=stay)
        now = world.live(*"abcdef")

        followed, passed = [step.name for step in steps if not step.passed], {step.name for step in steps if step.passed}
        assert len(steps) == len({step.name for step in steps}), "each once"
        assert not set(moves) & {step.name for step in steps}
        assert passed <= holds | set(stay)
        assert not set(followed) & (holds | set(stay))
        assert {name for name in now if now[name] != live[name]} <= {*moves, *followed}
        self.check_locks(live, now, followed, {*moves, *followed})
        if self.were_in_step(steps, live):
            self.check_undo(moves, live)

    def check_locks(self, live: dict[str, int], now: dict[str, int], followed: Collection[str], movers: Collection[str]) -> None:
        """Who followed has the new version of each callee that moved, and of the others what it had."""
        for name in followed:
            before, after = self.world.records[name, live[name]], self.world.records[name, now[name]]
            assert before.content == after.content
            for callee, edge in after.lock.items():
                moved = edge.follow == LIVE and callee in movers
                assert edge.version == (now[callee] if moved else before.lock[callee].version)

    def were_in_step(self, steps: list[Relock], live: dict[str, int]) -> bool:
        """Whether the dependents had been locked to where their callees were, and not been left behind by an earlier release."""
        bases = [(self.world.records[step.name, step.base], step.edges) for step in steps]
        return all(base.lock[callee].version == live[callee] for base, edges in bases for callee in edges)

    def check_undo(self, moves: dict[str, int], live: dict[str, int]) -> None:
        """Moving back what was moved brings every function back to where it was, with no new version."""
        world, now = self.world, self.world.live(*"abcdef")
        there, versions = dict(world.pointers), len(world.records)
        world.release({name: live[name] for name in moves}, stay=[name for name in "abcdef" if now[name] == live[name]])

        assert live == world.live(*"abcdef")
        assert versions == len(world.records)

        world.pointers = there

    @invariant()
    def every_lock_names_what_exists(self) -> None:
        for record in self.world.records.values():
            for callee, edge in record.lock.items():
                assert edge.digest == self.world.records[callee, edge.version].digest

    @invariant()
    def no_two_versions_of_a_function_are_the_same(self) -> None:
        digests = [(record.name, record.digest) for record in self.world.records.values()]
        assert len(digests) == len(set(digests))


Releases.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestReleases = Releases.TestCase
