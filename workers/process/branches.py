"""Running the nodes of a graph in order, side by side where that gains something.

Handing work to a thread costs some 50 µs under the interpreter's lock, so a node gets a thread only beside another that
is slow too: then one of them may well spend its time in code that releases the lock. Otherwise the caller's thread runs all, one
after another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

SLOW_S = 0.001
"""From here on a node is worth a thread."""


class Branches:
    """The graph: node → the nodes it waits for. ``pool`` may be smaller than the graph is wide: the caller's thread never waits for a
    thread of the pool that has not begun, so nested graphs cannot starve one another."""

    def __init__(self, needs: Mapping[int, frozenset[int]], pool: ThreadPoolExecutor) -> None:
        self._needs = needs
        self._pool = pool
        self._wide = _wide(needs)

    def run(self, order: Sequence[int], work: Callable[[int], None], mean_s: Callable[[int], float]) -> None:
        """Run ``work(node)`` for each of ``order`` (topological), each after those it needs. Raises what ``work`` raises."""
        if not self._wide or sum(mean_s(node) >= SLOW_S for node in order) < 2:
            for node in order:
                work(node)
            return
        _Run(self._needs, order, work, mean_s, self._pool).lead()


class _Run:
    def __init__(
        self,
        needs: Mapping[int, frozenset[int]],
        order: Sequence[int],
        work: Callable[[int], None],
        mean_s: Callable[[int], float],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._needs, self._work, self._mean_s, self._pool = needs, work, mean_s, pool
        self._todo = list(order)
        self._done = set(needs) - set(order)
        self._running = 0
        self._failed: BaseException | None = None
        self._change = threading.Condition()

    def lead(self) -> None:
        """The caller's thread: works while there is work, waits while others still run."""
        with self._change:
            while self._todo or self._running:
                if not self._take():
                    self._change.wait()
        if self._failed is not None:
            raise self._failed

    def _follow(self) -> None:
        """A thread of the pool: works while there is work."""
        with self._change:
            while self._take():
                pass

    def _take(self) -> bool:
        """Run one ready node, the lock released meanwhile; False if none is ready."""
        ready = [node for node in self._todo if self._needs[node] <= self._done]
        if not ready:
            return False
        node = ready[0]
        self._todo.remove(node)
        self._running += 1
        if self._mean_s(node) >= SLOW_S:
            for other in ready[1:]:
                if self._mean_s(other) >= SLOW_S:
                    self._pool.submit(self._follow)
        self._change.release()
        failed: BaseException | None = None
        try:
            self._work(node)
        except BaseException as error:  # carried to the thread that leads
            failed = error
        self._change.acquire()
        self._running -= 1
        self._done.add(node)
        if failed is not None:
            self._failed = failed
            self._todo.clear()
        self._change.notify_all()
        return True


def _wide(needs: Mapping[int, frozenset[int]]) -> bool:
    """Whether two nodes may run side by side: neither waits for the other, directly or not."""
    before: dict[int, frozenset[int]] = {}
    todo = list(needs)
    while todo:
        node = todo[-1]
        missing = [each for each in needs[node] if each not in before]
        if missing:
            todo += missing
        else:
            before[node] = needs[node].union(*(before[each] for each in needs[node]))
            todo.pop()
    # In one line, each node waits for all that came before it: 0, 1, 2 … nodes.
    return sorted(map(len, before.values())) != list(range(len(before)))
