from __future__ import annotations

from workers.node import machine
from workers.node.machine import Load, Memory


def test_memory_in_use_is_what_is_not_available() -> None:
    text = "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    400 kB\n"

    assert Memory(1000 * 1024, 600 * 1024) == machine.memory(text)


def test_the_load_is_the_busy_share_since_the_last_question() -> None:
    lines = iter(
        [
            "cpu  100 0 100 800 0 0 0 0 0 0\n",
            "cpu  150 0 100 850 0 0 0 0 0 0\n",
            "cpu  150 0 100 850 0 0 0 0 0 0\n",
            "cpu  150 0 100 900 50 0 0 0 0 0\n",
        ]
    )
    load = Load(lambda: next(lines))

    assert [0.5, 0.5, 0.0] == [load.share() for _ in range(3)]


def test_this_machine_has_something() -> None:
    assert machine.cores() >= 1
    assert 0 < machine.memory_limit() <= machine.memory().total
    assert 0.0 <= Load().share() <= 1.0
