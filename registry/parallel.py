"""Many requests to a store at once: each is one round trip of a few ms to a bucket, and a bundle may have thousands of files."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 8
T = TypeVar("T")
R = TypeVar("R")


def each(work: Callable[[T], R], items: Collection[T]) -> list[R]:
    """``work`` of each item, in order, up to AT_ONCE at a time. The first error is raised, once what had begun has ended; what had
    not begun does not begin."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(AT_ONCE, len(items)), "store") as pool:
        try:
            return list(pool.map(work, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
