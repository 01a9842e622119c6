from __future__ import annotations

import gc

import pytest

from functions.errors import NoCapacity
from workers.node.capacity import Capacity


def test_what_is_given_back_can_be_claimed_again() -> None:
    capacity = Capacity(2, 100 << 20)
    first, second = capacity.claim("a", 60 << 20), capacity.claim("b", 40 << 20)
    with pytest.raises(NoCapacity, match="all 2 replica processes"):
        capacity.claim("c", 0)
    first.release()
    first.release()

    assert (1, 60 << 20) == (capacity.free_processes, capacity.free_bytes)
    with pytest.raises(NoCapacity, match="no room for c: it needs about 61 MiB, 60 of this node's 100 MiB are free"):
        capacity.claim("c", 61 << 20)
    second.release()
    assert (2, 100 << 20) == (capacity.free_processes, capacity.free_bytes)


def test_a_lost_claim_is_given_back_and_logged_as_our_bug(caplog: pytest.LogCaptureFixture) -> None:
    capacity = Capacity(1, 10)
    claim = capacity.claim("lost one", 10)
    del claim
    gc.collect()

    assert ["capacity_lost what=lost one"] == [record.getMessage() for record in caplog.records]
    assert (1, 10) == (capacity.free_processes, capacity.free_bytes)
