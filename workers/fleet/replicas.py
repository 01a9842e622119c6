"""One lane of a replica as its node last reported it, and this router's link to it.

listed (ready at its node) → dialling → linked → lost ┬─ the node says it is gone: settled by its event, forgotten
                               ↑                      └─ no word within GONE_WAIT_S: settled without, dialled again
                               └─────────────────────────┘
"""

from __future__ import annotations

import asyncio

from functions.protocol import frames
from workers.fleet.links import Link
from workers.fleet.outcalls import Outcalls
from workers.fleet.pools import Pool
from workers.fleet.wrecks import Wreck
from workers.node.messages import ReplicaEvent


class Replica:
    """Owned by the router's lines; only they change the fields."""

    __slots__ = ("dials", "event", "link", "outcalls", "pool", "task", "timer", "wreck")

    def __init__(self, event: ReplicaEvent, pool: Pool) -> None:
        self.event = event
        self.pool = pool
        self.link: Link | None = None
        """From the dial on until it is lost."""
        self.outcalls: Outcalls | None = None
        self.wreck: Wreck | None = None
        """Set while nobody has said yet how it ended."""
        self.task: asyncio.Task[None] | None = None
        """The dial in progress."""
        self.timer: asyncio.TimerHandle | None = None
        """For the next dial, the end of waiting for the node's word, or cutting the link of one that is gone."""
        self.dials = 0
        """Failed dials in a row."""

    @property
    def at_rest(self) -> bool:
        """Nothing is under way that ends in a link."""
        return self.link is None and self.task is None and self.timer is None and self.wreck is None

    def hello(self) -> bytes:
        """Raises ValueError when the node's token or digest is not hexadecimal."""
        digest = self.event.digest.rpartition(":")[2]
        return frames.hello(bytes.fromhex(self.event.token), bytes.fromhex(digest), self.event.epoch)

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
