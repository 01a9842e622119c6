"""How a closure becomes processes: lanes, instances in each, and the credit a lane gives. Pure.

A Python instance is a process, a native one a thread with its own session. A replica has ``lanes`` = the largest instance
count over its Python members, each lane one process that holds the whole closure; a native member gets ceil(count / lanes)
threads in each lane. So with ``model.py`` at count 2 and ``model.onnx`` at count 3, a replica is 2 processes with one Python
instance and 2 ONNX sessions each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from functions.config.spec import ModelConfig
from functions.names import Ref


@dataclass(frozen=True, slots=True)
class Layout:
    """``credit`` is what one lane gives to all its routers together, in calls."""

    lanes: int
    threads: dict[Ref, int]
    credit: int


def layout(configs: Mapping[Ref, Mapping[str, Any]]) -> Layout:
    """The layout of a closure, given each member's normalised configuration, the root first."""
    closure = {ref: ModelConfig.of(config) for ref, config in configs.items()}
    lanes = max((config.instances for config in closure.values() if config.backend == "python"), default=1)
    threads = {ref: ceil(config.instances / lanes) if native(config) else 1 for ref, config in closure.items()}
    root, config = next(iter(closure.items()))
    if config.ensemble:
        # Batches of an ensemble overlap as far as its native steps do; a Python step takes one batch at a time anyway.
        threads[root] = max(threads.values())
    return Layout(lanes, threads, credit(config, threads[root]))


def native(config: ModelConfig) -> bool:
    """Whether its instances are threads of one process."""
    return config.backend != "python" and not config.ensemble


def credit(root: ModelConfig, threads: int) -> int:
    """Calls that one lane takes from all its routers together: one batch running and one gathered, for each instance."""
    return 2 * max(1, root.max_batch_size) * threads


def shares(total: int, links: int) -> list[int]:
    """``total`` divided among so many links, at least 1 each; the first ones get what does not divide."""
    whole, rest = divmod(total, links) if links else (0, 0)
    return [max(1, whole + (position < rest)) for position in range(links)]
