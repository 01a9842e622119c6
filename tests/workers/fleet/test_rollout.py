"""Roll-outs over a real registry, with nodes that start what the test lets them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from functions.bundle import Inspected
from functions.calls import CallDecl
from functions.errors import BundleRefused, Conflict, DespinaError, InvalidRequest, NotFound, PreconditionFailed, StartFailed
from functions.names import LIVE, Ref
from functions.records import VersionRecord
from registry.service import Registry
from registry.stores import open_store
from tests.registry.conftest import Author, Clock
from workers.fleet.promotion import Dependents, Outcome, Promotion
from workers.fleet.rollout import Rollout


class Fleet:
    """What is wanted is ready when it is waited for, unless it is broken."""

    def __init__(self) -> None:
        self.replicas: dict[Ref, int] = {}
        self.broken: dict[Ref, DespinaError] = {}
        self.was_broken: set[Ref] = set()
        self.wants: list[tuple[Ref, int]] = []
        self.gates: dict[Ref, asyncio.Event] = {}
        self.reached: dict[Ref, asyncio.Event] = {}

    def ready(self, ref: Ref) -> int:
        return self.replicas.get(ref, 0)

    def failed(self, ref: Ref) -> bool:
        return ref in self.was_broken

    async def reset(self, ref: Ref) -> None:
        self.was_broken.discard(ref)

    def want(self, ref: Ref, count: int, ttl_s: float, holder: str) -> None:
        assert holder.startswith("release ")
        assert (count == 0) == (ttl_s == 0)
        self.wants.append((ref, count))

    async def wait_ready(self, ref: Ref, count: int, wait_s: float, least: int) -> None:  # noqa: ARG002
        assert 1 <= least <= count
        assert not self.failed(ref)
        if ref in self.gates:
            self.reached[ref].set()
            await self.gates[ref].wait()
        if ref in self.broken:
            raise self.broken[ref]
        self.replicas[ref] = max(count, self.ready(ref))

    def hold(self, ref: Ref) -> None:
        self.gates[ref], self.reached[ref] = asyncio.Event(), asyncio.Event()


class World:
    def __init__(self, directory: Path) -> None:
        self.registry = Registry(open_store(f"file://{directory}/store"), Clock())
        self.registry.catalog.load()
        self.author = Author(self.registry, directory / "bundles")
        self.fleet = Fleet()
        self.bundles: dict[str, Inspected] = {}
        self.staging = directory / "staging"
        self.rollout = Rollout(self.registry, self.fleet, self.inspect, self.staging)

    async def inspect(self, source: Path, _name: str, staging: Path) -> Inspected:
        if str(source) not in self.bundles:
            raise BundleRefused("no config", field="config.pbtxt")
        staging.mkdir(parents=True)
        return self.bundles[str(source)]

    def version(self, name: str, text: str, *callees: str, with_: Mapping[str, int] | None = None, **edges: CallDecl) -> VersionRecord:
        calls = {callee: CallDecl(LIVE, None, False, "manifest") for callee in callees} | edges
        return self.registry.record(self.author.bundle(name, text, calls), name, "ann", with_)[0]

    async def move(self, name: str, version: int, tag: str = LIVE, **more: object) -> Promotion:
        return await self.rollout.move({name: version}, tag, by="ann", release="r", **more)  # type: ignore[arg-type]

    def live(self, name: str) -> int:
        return self.registry.catalog.tag(name, LIVE).version

    async def chain(self) -> None:
        """``a`` calls ``b`` calls ``c``: all at version 1, live; ``c`` has a version 2."""
        for name, callees in (("c", ()), ("b", ("c",)), ("a", ("b",))):
            self.version(name, "1", *callees)
            assert (await self.move(name, 1)).state is Outcome.MOVED
        self.version("c", "2")
        self.fleet.wants.clear()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def told(promotion: Promotion) -> list[tuple[str, Outcome, int]]:
    return [(dependent.name, dependent.state, dependent.version) for dependent in promotion.dependents]


# -- publishing -------------------------------------------------------------------------------------------------------


async def test_a_published_bundle_is_recorded_warmed_and_live(world: World) -> None:
    world.bundles["up"] = world.author.bundle("f", "1")
    published = await world.rollout.publish(Path("up"), "f", by="ann", release="r1")

    assert (True, Ref("f", 1), ("live",)) == (published.created, published.record.ref, published.tags)
    assert [(Ref("f", 1), 1)] == world.fleet.wants
    assert ("ann", "r1", "promote") == tuple(getattr(world.registry.catalog.tag("f", LIVE), key) for key in ("by", "release", "reason"))
    shown = published.to_json()

    assert ["name", "version", "digest", "lock", "size_bytes", "warnings", "tags", "promotion"] == list(shown)
    assert {"state": "moved", "reason": "", "dependents": []} == shown["promotion"]
    assert [] == list(world.staging.iterdir())


async def test_the_same_bundle_again_is_the_same_version(world: World) -> None:
    world.bundles["up"] = world.author.bundle("f", "1")
    await world.rollout.publish(Path("up"), "f", by="ann", release="r1")
    again = await world.rollout.publish(Path("up"), "f", by="ann", release="r2")

    assert (False, 1) == (again.created, again.record.version)
    assert 1 == world.registry.catalog.tag("f", LIVE).epoch


async def test_a_version_that_does_not_start_is_recorded_and_not_live(world: World) -> None:
    world.bundles["up"] = world.author.bundle("f", "1")
    world.fleet.broken[Ref("f", 1)] = StartFailed("f@1: model.py:3: boom")
    published = await world.rollout.publish(Path("up"), "f", by="ann", release="r")

    assert (Outcome.FAILED, "f@1: model.py:3: boom") == (published.promotion.state, published.promotion.reason)
    assert isinstance(published.promotion.error, StartFailed)
    assert [1] == world.registry.catalog.versions("f")
    assert {} == world.registry.catalog.tags("f")
    assert (Ref("f", 1), 0) == world.fleet.wants[-1]


async def test_a_version_need_not_be_promoted(world: World) -> None:
    world.bundles["up"] = world.author.bundle("f", "1")
    published = await world.rollout.publish(Path("up"), "f", promote=False, by="ann", release="r")

    assert (Outcome.SKIPPED, ()) == (published.promotion.state, published.tags)
    assert [] == world.fleet.wants


async def test_a_promotion_that_is_refused_does_not_hide_the_recorded_version(world: World) -> None:
    world.bundles["up"] = world.author.bundle("f", "1")
    published = await world.rollout.publish(Path("up"), "f", tag="not a tag", by="ann", release="r")

    assert (1, Outcome.FAILED, InvalidRequest) == (
        published.record.version,
        published.promotion.state,
        type(published.promotion.error),
    )


async def test_a_refused_bundle_leaves_nothing_behind(world: World) -> None:
    with pytest.raises(BundleRefused):
        await world.rollout.publish(Path("elsewhere"), "f", by="ann", release="r")

    assert [] == world.registry.catalog.functions()
    assert not world.staging.exists()


async def test_a_release_locks_callees_to_the_versions_it_is_about_to_move(world: World) -> None:
    await world.chain()
    world.bundles["up"] = world.author.bundle("b", "2", {"c": CallDecl(LIVE, None, False, "manifest")})
    published = await world.rollout.publish(Path("up"), "b", promote=False, by="ann", release="r", with_={"c": 2})

    assert 2 == published.record.lock["c"].version


# -- moving -----------------------------------------------------------------------------------------------------------


async def test_the_target_is_warmed_to_the_capacity_of_the_loser_before_the_tag_moves_and_both_are_kept(world: World) -> None:
    world.version("f", "1")
    world.version("f", "2")
    await world.move("f", 1)
    world.fleet.replicas[Ref("f", 1)] = 3
    world.fleet.wants.clear()
    world.fleet.hold(Ref("f", 2))
    moving = asyncio.create_task(world.move("f", 2))
    await asyncio.wait_for(world.fleet.reached[Ref("f", 2)].wait(), 5)

    assert 1 == world.live("f")

    world.fleet.gates[Ref("f", 2)].set()

    assert Outcome.MOVED is (await moving).state
    assert 2 == world.live("f")
    assert [(Ref("f", 2), 3), (Ref("f", 1), 3)] == world.fleet.wants


async def test_a_version_that_failed_before_is_tried_again(world: World) -> None:
    world.version("f", "1")
    world.fleet.was_broken.add(Ref("f", 1))

    assert Outcome.MOVED is (await world.move("f", 1)).state


async def test_a_target_that_does_not_start_leaves_every_tag_of_the_release(world: World) -> None:
    for name in ("f", "g"):
        world.version(name, "1")
        world.version(name, "2")
        await world.move(name, 1)
    world.fleet.broken[Ref("g", 2)] = StartFailed("g@2: boom")
    promotion = await world.rollout.move({"f": 2, "g": 2}, LIVE, by="ann", release="r")

    assert (Outcome.FAILED, "g@2: boom") == (promotion.state, promotion.reason)
    assert (1, 1) == (world.live("f"), world.live("g"))


async def test_one_release_id_stands_in_the_history_of_everything_it_moved(world: World) -> None:
    await world.chain()
    await world.move("c", 2)

    assert {"r"} == {world.registry.catalog.tag(name, LIVE).release for name in "abc"}


async def test_another_epoch_is_refused_before_anything_is_warmed(world: World) -> None:
    world.version("f", "1")
    with pytest.raises(PreconditionFailed, match="at epoch 0, not 4"):
        await world.move("f", 1, expect=4)
    with pytest.raises(NotFound):
        await world.move("f", 9)

    assert [] == world.fleet.wants
    assert Outcome.MOVED is (await world.move("f", 1, expect=0)).state


async def test_a_later_move_does_not_wait_for_an_earlier_ones_target_and_is_the_last_word(world: World) -> None:
    """A rollback had to wait until the hanging promotion that it was to undo had given up."""
    for text in ("1", "2"):
        world.version("f", text)
    await world.move("f", 1)
    world.fleet.hold(Ref("f", 2))
    promoting = asyncio.create_task(world.move("f", 2, reason="promote"))
    await asyncio.wait_for(world.fleet.reached[Ref("f", 2)].wait(), 5)

    assert Outcome.MOVED is (await asyncio.wait_for(world.move("f", 1, held=True, reason="rollback"), 5)).state
    assert not promoting.done()

    world.fleet.gates[Ref("f", 2)].set()
    with pytest.raises(Conflict, match="moved to 1 by a later request while 2 was warmed"):
        await promoting

    assert 1 == world.live("f")


async def test_moves_that_are_ready_happen_in_the_order_in_which_they_were_made(world: World) -> None:
    for text in ("1", "2", "3"):
        world.version("f", text)
    results = await asyncio.gather(*(world.move("f", version) for version in (1, 3, 2)), return_exceptions=True)

    assert 2 == world.live("f")
    assert Outcome.MOVED is results[2].state  # type: ignore[union-attr]


# -- dependents -------------------------------------------------------------------------------------------------------


async def test_dependents_follow_callees_before_callers_each_warm_before_it_moves(world: World) -> None:
    await world.chain()
    promotion = await world.move("c", 2)

    assert [("b", Outcome.MOVED, 2), ("a", Outcome.MOVED, 2)] == told(promotion)
    assert {Ref("c", 2), Ref("b", 2), Ref("a", 2)} <= {ref for ref, count in world.fleet.wants if count}
    record = world.registry.catalog.record("a", world.live("a"))

    assert ("relock", 2) == (record.origin, record.lock["b"].version)


async def test_kept_dependents_stay_and_are_reported(world: World) -> None:
    await world.chain()
    promotion = await world.move("c", 2, dependents=Dependents.KEEP)

    assert [("b", Outcome.STAYED, 1), ("a", Outcome.STAYED, 1)] == told(promotion)
    assert (2, 1, 1) == (world.live("c"), world.live("b"), world.live("a"))


async def test_one_that_cannot_follow_stays_with_what_rests_on_it_and_the_others_move(world: World) -> None:
    await world.chain()
    world.version("other", "1", "c")
    await world.move("other", 1)
    world.fleet.broken[Ref("b", 2)] = StartFailed("b@2: no longer fits")
    promotion = await world.move("c", 2)

    assert [("other", Outcome.MOVED, 2), ("b", Outcome.STAYED, 1)] == told(promotion)
    assert "b@2: no longer fits" == promotion.dependents[1].reason
    assert (2, 1, 1, 2) == (world.live("c"), world.live("b"), world.live("a"), world.live("other"))


async def test_where_all_dependents_are_required_one_that_cannot_follow_stops_everything(world: World) -> None:
    await world.chain()
    world.fleet.broken[Ref("a", 2)] = StartFailed("a@2: boom")
    promotion = await world.move("c", 2, dependents=Dependents.REQUIRE)

    assert (Outcome.FAILED, "not all dependents can follow: a: a@2: boom") == (promotion.state, promotion.reason)
    assert (1, 1, 1) == (world.live("c"), world.live("b"), world.live("a"))

    del world.fleet.broken[Ref("a", 2)]
    promotion = await world.move("c", 2, dependents=Dependents.REQUIRE)

    assert Outcome.MOVED is promotion.state
    assert (2, 2, 2) == (world.live("c"), world.live("b"), world.live("a"))


async def test_a_dependent_that_somebody_moved_meanwhile_is_theirs(world: World) -> None:
    await world.chain()
    world.version("b", "mine", "c")
    world.fleet.hold(Ref("b", 3))
    moving = asyncio.create_task(world.move("c", 2))
    await asyncio.wait_for(world.fleet.reached[Ref("b", 3)].wait(), 5)
    world.registry.move("b", LIVE, 2, "bob", "other")
    world.fleet.gates[Ref("b", 3)].set()
    promotion = await moving

    assert ("b", Outcome.STAYED) == told(promotion)[0][:2]
    assert "epoch" in promotion.dependents[0].reason
    assert 2 == world.live("b")


# -- rolling back -----------------------------------------------------------------------------------------------------


async def test_a_rollback_takes_the_whole_graph_back_without_new_versions_and_holds_the_function(world: World) -> None:
    await world.chain()
    await world.move("c", 2)
    promotion = await world.rollout.rollback("c", by="ann", release="back")

    assert [("b", Outcome.MOVED, 1), ("a", Outcome.MOVED, 1)] == told(promotion)
    assert [1, 2] == world.registry.catalog.versions("a")
    assert [True, False, False] == [world.registry.catalog.tag(name, LIVE).held for name in "cba"]
    assert "rollback" == world.registry.catalog.tag("c", LIVE).reason


async def test_a_held_function_is_passed_by_until_it_is_moved_by_hand(world: World) -> None:
    await world.chain()
    world.version("b", "2", "c")
    await world.move("b", 2)
    await world.rollout.rollback("b", 1, by="ann", release="back")
    promotion = await world.move("c", 2)

    assert [("b", Outcome.STAYED, 1)] == told(promotion)
    assert "held" == promotion.dependents[0].reason

    required = await world.move("c", 1, dependents=Dependents.REQUIRE)

    assert Outcome.MOVED is required.state
    await world.move("b", 2)

    assert not world.registry.catalog.tag("b", LIVE).held


async def test_there_must_be_something_to_roll_back_to(world: World) -> None:
    world.version("f", "1")
    await world.move("f", 1)
    with pytest.raises(Conflict):
        await world.rollout.rollback("f", by="ann", release="back")
    with pytest.raises(NotFound):
        await world.rollout.rollback("f", "canary", by="ann", release="back")
