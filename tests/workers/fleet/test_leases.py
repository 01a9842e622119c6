from __future__ import annotations

from functions.names import Ref
from workers.fleet.leases import Leases

F = Ref("f", 1)


def test_the_largest_count_is_told_for_as_long_as_the_longest_lease_lives() -> None:
    leases = Leases()
    leases.put(F, "router", 1, 15.0)
    leases.put(F, "release", 4, 10.0)

    assert (4, 15.0) == leases.told(F, 0.0)
    assert (1, 4.0) == leases.told(F, 11.0)
    assert [(F, 4, 15.0)] == list(leases.living(0.0))


def test_what_was_given_up_or_has_ended_does_not_count() -> None:
    leases = Leases()
    leases.put(F, "router", 1, 15.0)
    leases.put(F, "release", 4, 10.0)
    leases.put(F, "release", 0, 0.0)
    leases.put(F, "nobody", 0, 0.0)

    assert (1, 15.0) == leases.told(F, 0.0)
    assert [] == leases.ended(14.0)
    assert [F] == leases.ended(15.0)
    assert (0, 0.0) == leases.told(F, 15.0)
    assert [] == leases.ended(16.0)
