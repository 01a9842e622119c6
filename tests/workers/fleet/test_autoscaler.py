from __future__ import annotations

import pytest

from functions.errors import NotFound, StoreUnreachable
from functions.names import Ref
from workers.fleet.autoscaler import Autoscaler
from workers.fleet.board import Sighting
from workers.fleet.decide import Policy
from workers.fleet.observation import Observation, total

F, G = Ref("f", 1), Ref("g", 1)


class Fleet:
    """Starts at once what is wanted."""

    def __init__(self) -> None:
        self.held: dict[Ref, int] = {}
        self.wants = 0

    def ready(self, ref: Ref) -> int:
        return self.held.get(ref, 0)

    def want(self, ref: Ref, count: int, ttl_s: float, holder: str) -> None:
        assert (15.0 if count else 0.0, "autoscaler") == (ttl_s if count else 0.0, holder)
        self.held[ref] = count
        self.wants += 1


def seen(load: float, idle_s: float = 0.0) -> Observation:
    return Observation(load, 0, int(load), 1, idle_s)


class World:
    def __init__(self, **policies: Policy) -> None:
        self.fleet = Fleet()
        self.policies = {Ref(name, 1): policy for name, policy in policies.items()}
        self.error: Exception | None = None
        self.scaler = Autoscaler(self.fleet, self._policy, lambda: {ref for ref, policy in self.policies.items() if policy.min})
        self.now = 0.0

    def _policy(self, ref: Ref) -> Policy:
        if self.error is not None:
            raise self.error
        return self.policies[ref]

    def pass_(self, seconds: int, sightings: dict[str, Sighting] | None) -> dict[Ref, int]:
        for _ in range(seconds):
            self.now += 1.0
            decided = self.scaler.tick(sightings, self.now)
        return decided


def test_the_loads_that_all_routers_report_are_added() -> None:
    world = World(f=Policy(max=10, target=2.0))

    assert {F: 3} == world.pass_(1, {"one": {F: seen(2.0)}, "two": {F: seen(4.0)}, "three": {}})
    assert {F: 3} == world.fleet.held


def test_a_version_that_no_router_mentions_any_more_has_no_calls_and_goes_in_the_end() -> None:
    world = World(f=Policy(max=10, idle_s=5.0))
    world.pass_(1, {"router": {F: seen(2.0)}})
    world.pass_(5, {"router": {}})

    assert {F: 0} == world.fleet.held

    world.pass_(120, {"router": {}})
    wants = world.fleet.wants

    assert {} == world.pass_(10, {"router": {}})
    assert wants == world.fleet.wants


@pytest.mark.parametrize("nothing", [None, {}], ids=["the board is lost", "no router lives"])
def test_without_reports_every_count_is_held_on(nothing: dict[str, Sighting] | None) -> None:
    world = World(f=Policy(max=10))
    world.pass_(60, {"router": {F: seen(4.0)}})
    wants = world.fleet.wants
    world.pass_(600, nothing)

    assert {F: 4} == world.fleet.held
    assert wants + 600 == world.fleet.wants


def test_a_floor_is_held_without_calls_routers_or_board() -> None:
    world = World(g=Policy(min=2, max=4))

    assert {G: 2} == world.pass_(1, None)
    assert {G: 2} == world.pass_(200, {"router": {}})

    world.policies[G] = Policy(min=0, max=4)
    world.pass_(2, {"router": {}})

    assert {G: 0} == world.fleet.held


def test_a_deleted_version_is_let_go() -> None:
    world = World(f=Policy(max=10))
    world.pass_(1, {"router": {F: seen(4.0)}})
    world.error = NotFound("f version 1 is not found")
    world.pass_(1, {"router": {}})

    assert {F: 0} == world.fleet.held


def test_a_policy_that_cannot_be_read_changes_nothing() -> None:
    world = World(f=Policy(max=10))
    world.pass_(1, {"router": {F: seen(4.0)}})
    world.error = StoreUnreachable("the store did not answer")

    assert {F: 4} == world.pass_(5, {"router": {F: seen(9.0)}})


def test_observations_add_up_and_the_shortest_idle_time_counts() -> None:
    assert Observation(6.0, 0, 6, 2, 1.0) == total([seen(2.0, 5.0), seen(4.0, 1.0)])
    assert total([]) is None
