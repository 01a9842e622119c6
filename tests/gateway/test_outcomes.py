from __future__ import annotations

import pytest

from gateway import outcomes


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (1, 2, "f live: 1 → 2"),
        (1, 1, "f live stays at 1"),
        (None, 1, "f live: new → 1"),
        (None, None, "f has no tag 'live' yet"),
    ],
)
def test_a_move_says_what_went_from_where_to_where(before: int | None, after: int | None, says: str) -> None:
    assert says == outcomes.moved("f", "live", before, after)


@pytest.mark.parametrize(
    ("state", "reason", "tag", "says"),
    [
        ("moved", "", "live", "ens follows, now as version 4"),
        ("stayed", "held", "live", "ens stays at 4: a rollback holds it there; despina tag ens live 4 releases it"),
        ("stayed", "held", "canary", "ens stays at 4: a rollback holds it there; despina tag ens TAG 4 releases it"),
        ("stayed", "split", "live", "ens stays at 4: its tag points at several versions"),
        ("stayed", "kept", "live", "ens stays at 4: dependents were to be kept"),
        ("stayed", "its weights are missing", "live", "ens stays at 4: its weights are missing"),
    ],
)
def test_a_dependent_is_told_as_a_sentence(state: str, reason: str, tag: str, says: str) -> None:
    assert says == outcomes.dependent({"name": "ens", "state": state, "reason": reason, "version": 4}, tag)


def test_a_refused_deploy_says_what_is_recorded_and_where_the_tags_are_before_the_reason() -> None:
    result = {
        "versions": [{"name": "a", "version": 3}, {"name": "b", "version": 1}],
        "tag": "live",
        "tags": {"a": {"before": 2, "after": 2}, "b": {"before": None, "after": None}},
        "promotion": {"state": "failed", "reason": "no weights", "dependents": []},
    }

    assert "a@3, b@1 are recorded but not promoted; a live stays at 2, b has no tag 'live' yet: no weights" == outcomes.refused(result)
