"""One call that a router sent, from its arrival until its answer is handed to the link."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import TYPE_CHECKING

from functions.protocol.calls import DecodedCall
from functions.protocol.frames import CallHead

if TYPE_CHECKING:
    from workers.process.door import Door
    from workers.process.link import Link

GLANCE_S = 0.001
"""How old the last look at the sockets may be for ``cancelled`` to trust it."""


class Call:
    """``gone`` is set when the router cancels the call or its link breaks; nobody else sets it. Who holds a call may read all of it."""

    __slots__ = (
        "body",
        "context",
        "deadline",
        "decode_us",
        "decoded",
        "door",
        "flags",
        "gone",
        "header_length",
        "hops",
        "id",
        "key",
        "link",
        "queued_s",
        "rows",
    )

    def __init__(
        self,
        door: Door,
        link: Link,
        id: int,
        flags: int,
        head: CallHead,
        context: memoryview,
        body: memoryview,
        now: float,
        timeout_s: float,
    ) -> None:
        self.door, self.link, self.id, self.flags = door, link, id, flags
        self.header_length, self.hops = head.header_length, head.hops
        self.context, self.body = context, body
        self.queued_s = now - head.waited_us / 1e6
        self.deadline = now + (head.remaining_us / 1e6 if head.remaining_us else timeout_s)
        self.gone = False
        self.decoded: DecodedCall
        self.decode_us = 0.0
        self.rows = 1
        self.key: Hashable = None

    @property
    def page_id(self) -> int:
        """As the shared page names it."""
        return self.link.number << 48 | self.id & 0xFFFF_FFFF_FFFF

    def cancelled(self) -> bool:
        """Whether the caller has gone away. Looks at the sockets, without blocking, when nobody has for a millisecond."""
        if not self.gone and time.monotonic() - self.door.looked_s > GLANCE_S:
            self.door.glance()
        return self.gone
