import threading
import time
from typing import Any, cast

import pytest

from functions.errors import DeadlineExceeded
from workers.backends.base import Backend
from workers.process.instances import Instances


def instances(count: int) -> Instances:
    return Instances(cast(list[Backend], list(range(count))))


def test_an_instance_is_held_by_one_thread_until_it_is_released() -> None:
    pool = instances(1)
    held = pool.acquire(None)

    def other() -> None:
        with pytest.raises(DeadlineExceeded):
            pool.acquire(time.monotonic())
        seen.append(pool.busy_elsewhere())

    seen: list[Any] = []
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    pool.release(held)

    assert [True] == seen
    assert held is pool.acquire(None)


def test_a_thread_that_holds_one_gets_the_same_again() -> None:
    pool = instances(2)
    first = pool.acquire(None)

    again = pool.acquire(time.monotonic())
    pool.release(again)

    assert first is again
    assert threading.get_ident() == first.holder
    assert not pool.busy_elsewhere()
