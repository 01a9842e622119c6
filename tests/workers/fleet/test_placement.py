from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from functions.names import Ref
from workers.fleet.placement import place

refs = st.builds(Ref, st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 9))
nodes = st.sets(st.sampled_from(["n1", "n2", "n3", "n4", "n5"]), min_size=1)


@settings(deadline=None)
@given(refs, st.integers(0, 40), nodes)
def test_all_are_placed_and_evenly(ref: Ref, count: int, nodes: set[str]) -> None:
    shares = place(ref, count, nodes)

    assert (count, nodes) == (sum(shares.values()), set(shares))
    assert max(shares.values()) - min(shares.values()) <= 1


@settings(deadline=None)
@given(refs, st.integers(0, 40), nodes, st.sets(st.sampled_from(["n1", "n2", "n3"])))
def test_full_nodes_get_some_only_when_all_are_full(ref: Ref, count: int, nodes: set[str], full: set[str]) -> None:
    shares = place(ref, count, nodes, full)

    assert count == sum(shares.values())
    assert not nodes - full or all(shares[node] == 0 for node in full & nodes)


def test_no_nodes_hold_nothing() -> None:
    assert {} == place(Ref("f", 1), 3, [])


def test_versions_start_on_different_nodes() -> None:
    first = {max(shares, key=lambda node: shares[node]) for shares in (place(Ref("f", v), 1, ["n1", "n2", "n3"]) for v in range(1, 30))}

    assert {"n1", "n2", "n3"} == first
