from __future__ import annotations

from functions.names import Ref
from workers.node.leases import Leases

F = Ref("f", 1)


def test_the_largest_living_lease_counts_as_the_day_goes_by() -> None:
    leases = Leases()
    leases.put("a", F, 2, until=10)
    leases.put("b", F, 5, until=4)
    leases.put("a", Ref("g", 1), 9, until=10)

    assert [5, 5, 2, 2, 0] == [leases.wanted(F, now) for now in (0, 3.9, 4, 9.9, 10)]


def test_a_clients_lease_is_replaced_by_its_next_one_and_given_up_by_zero() -> None:
    leases = Leases()
    leases.put("a", F, 5, until=10)
    leases.put("a", F, 1, until=20)
    assert (1, 1) == (leases.wanted(F, 0), leases.wanted(F, 15))
    leases.put("a", F, 0, until=20)

    assert 0 == leases.wanted(F, 15)


def test_giving_up_what_was_never_had_does_nothing() -> None:
    leases = Leases()
    leases.put("a", F, 0, until=20)

    assert 0 == leases.wanted(F, 0)
