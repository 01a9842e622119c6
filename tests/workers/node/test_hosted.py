"""What becomes of a version after its replicas die, as a table of moments."""

from __future__ import annotations

from typing import Any, cast

import pytest

from functions.errors import DespinaError, InternalError, NotFound, ReplicaDied, StartFailed, StoreUnreachable
from functions.names import Ref
from workers.node.hosted import EARLY_DEATHS, STEADY_S, Hosted
from workers.node.plan import Plan
from workers.node.replica import Replica


class Dead:
    """What ``Hosted`` looks at of a replica that has ended."""

    def __init__(
        self,
        error: DespinaError,
        *,
        ready_at: float | None = None,
        deterministic: bool = False,
        pid: int = 7,
        key: tuple[int, int] = (0, 0),
    ) -> None:
        self.error, self.ready_at, self.deterministic, self.pid = error, ready_at, deterministic, pid
        self.number, self.lane = key


def dead(error: DespinaError | None = None, **facts: Any) -> Replica:
    return cast(Replica, Dead(error or ReplicaDied("killed"), **facts))


def hosted(lanes: int = 1) -> Hosted:
    return Hosted(Ref("f", 1), Plan(Ref("f", 1), "sha256:0", (), lanes, 300, 330, 1, 1))


def test_whole_replicas_are_missing_lane_by_lane_and_surplus_from_the_end() -> None:
    version = hosted(lanes=2)
    assert [(0, 0), (0, 1), (1, 0), (1, 1)] == version.missing(2)
    for key in version.missing(2):
        version.lanes[key] = dead(key=key)
    one = version.lanes[0, 1]

    assert [] == version.missing(2)
    assert [(1, 0), (1, 1)] == [(replica.number, replica.lane) for replica in version.surplus(1)]
    assert version.forget(one)
    assert not version.forget(one)
    assert [(0, 1)] == version.missing(2)


def test_starts_are_put_off_longer_after_each_death_until_one_was_steady() -> None:
    version = hosted()
    waits = []
    for _ in range(5):
        assert version.died(dead(ready_at=99.0), 100.0, "") is None
        waits.append(round(version.not_before - 100.0, 2))
    version.died(dead(ready_at=100.0 - STEADY_S), 100.0, "")

    assert [0.05, 0.2, 0.8, 3.2, 10.0] == waits
    assert 0.05 == round(version.not_before - 100.0, 2)


def test_deaths_before_ready_are_counted_and_a_ready_one_wipes_them_out() -> None:
    version = hosted()
    said = [version.died(dead(), 0.0, "") for _ in range(EARLY_DEATHS - 1)]
    version.ready()
    said += [version.died(dead(), 0.0, "") for _ in range(EARLY_DEATHS - 1)]
    last = version.died(dead(), 0.0, "its last words")

    assert [None] * 4 == said
    assert last is not None
    assert (StartFailed.wire, "its last words", 30.0) == (last.wire, last.output, last.retry_after_s)


def test_what_was_never_forked_is_not_the_authors_fault() -> None:
    version = hosted()

    assert [None] * 9 == [version.died(dead(InternalError("no zygote"), pid=0), 0.0, "") for _ in range(9)]


@pytest.mark.parametrize(("error", "waits"), [(NotFound("gone"), [30, 60, 120]), (StoreUnreachable("away"), [0.05, 0.2, 0.8])])
def test_what_mends_by_itself_is_tried_again_sooner(error: DespinaError, waits: list[float]) -> None:
    version = hosted()

    assert waits == [round(version.failed(error, 0.0).retry_after_s, 2) for _ in range(3)]


def test_a_deterministic_failure_fails_the_version_at_once_and_is_forgiven_once() -> None:
    version = hosted()
    failure = version.died(dead(StartFailed("no"), deterministic=True), 5.0, "out")

    assert failure is not None
    assert (True, 302, "no", 35.0) == (failure.failed, failure.wire, failure.message, version.not_before)
    forgiven = version.forgive()
    assert forgiven is not None
    assert (False, 0.0, None) == (forgiven.failed, version.not_before, version.forgive())
