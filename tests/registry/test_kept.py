"""What two readers saw merges into the same, whoever was first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.records import TagRecord, Target
from registry.kept import Kept


def moved(tag: str, epoch: int) -> TagRecord:
    return TagRecord("f", tag, epoch, (Target(epoch),), "", "", "")


KEPT = st.builds(
    lambda last, deleted, epochs, scale: Kept(
        last, frozenset(deleted), {tag: moved(tag, at) for tag, at in epochs.items()}, scale, {"min": scale}
    ),
    last=st.integers(0, 9),
    deleted=st.sets(st.integers(1, 9)),
    epochs=st.dictionaries(st.sampled_from(["live", "canary"]), st.integers(1, 9)),
    scale=st.integers(0, 9),
)


@given(KEPT, KEPT, KEPT)
def test_merging_does_not_depend_on_the_order(a: Kept, b: Kept, c: Kept) -> None:
    assert a.merged(b) == b.merged(a)
    assert a.merged(b).merged(c) == a.merged(b.merged(c))


@given(KEPT, KEPT)
def test_old_news_change_nothing(a: Kept, b: Kept) -> None:
    both = a.merged(b)

    assert both == both.merged(a) == both.merged(b) == both.merged(Kept())


def test_deleted_versions_cannot_be_called() -> None:
    assert frozenset({1, 3}) == Kept(3, frozenset({2})).versions
