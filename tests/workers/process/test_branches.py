import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from workers.process.branches import Branches

DIAMOND = {0: frozenset[int](), 1: frozenset({0}), 2: frozenset({0}), 3: frozenset({1, 2})}


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as made:
        yield made


def test_slow_branches_run_side_by_side(pool: ThreadPoolExecutor) -> None:
    meet = threading.Barrier(2, timeout=10)
    ran: list[int] = []

    def work(node: int) -> None:
        if node in (1, 2):
            meet.wait()
        ran.append(node)

    Branches(DIAMOND, pool).run([0, 1, 2, 3], work, lambda _node: 1.0)

    assert (0, 3, [0, 1, 2, 3]) == (ran[0], ran[-1], sorted(ran))


def test_quick_branches_stay_on_the_callers_thread(pool: ThreadPoolExecutor) -> None:
    threads: list[int] = []

    Branches(DIAMOND, pool).run([0, 1, 2, 3], lambda _node: threads.append(threading.get_ident()), lambda _node: 0.0)

    assert [threading.get_ident()] * 4 == threads


def test_a_pool_that_is_taken_does_not_hold_the_graph_up() -> None:
    free = threading.Event()
    with ThreadPoolExecutor(1) as taken:
        taken.submit(free.wait)
        ran: list[int] = []

        Branches(DIAMOND, taken).run([0, 1, 2, 3], ran.append, lambda _node: 1.0)
        free.set()

    assert [0, 1, 2, 3] == ran


def test_what_a_node_raises_reaches_the_caller_and_nothing_is_run_after_it(pool: ThreadPoolExecutor) -> None:
    ran: list[int] = []

    def work(node: int) -> None:
        ran.append(node)
        raise KeyError(node)

    with pytest.raises(KeyError):
        Branches(DIAMOND, pool).run([0, 1, 2, 3], work, lambda _node: 1.0)

    assert [0] == ran


def test_a_node_left_out_counts_as_done(pool: ThreadPoolExecutor) -> None:
    ran: list[int] = []

    Branches(DIAMOND, pool).run([1, 3], ran.append, lambda _node: 1.0)

    assert [1, 3] == ran


def test_a_graph_of_many_paths_is_looked_through_once(pool: ThreadPoolExecutor) -> None:
    """Each node needs the two before it: 2**60 paths. An ensemble of 36 such steps did not get ready within its time."""
    needs = {node: frozenset(each for each in (node - 1, node - 2) if each >= 0) for node in range(90)}
    ran: list[int] = []
    Branches(needs, pool).run(range(90), ran.append, lambda _node: 1.0)

    assert list(range(90)) == ran


def test_nodes_that_do_not_wait_for_each_other_are_seen(pool: ThreadPoolExecutor) -> None:
    together = threading.Barrier(2, timeout=10)
    diamond = {0: frozenset[int](), 1: frozenset({0}), 2: frozenset({0}), 3: frozenset({1, 2})}
    Branches(diamond, pool).run([0, 1, 2, 3], lambda node: together.wait() and None if node in (1, 2) else None, lambda _node: 1.0)
