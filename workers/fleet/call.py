"""One call on its way through the router: what the door says about it, and the router's own notes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from functions.errors import DespinaError
from functions.names import Ref
from functions.protocol.frames import NO_HEADER

if TYPE_CHECKING:
    from workers.fleet.links import Link
    from workers.fleet.pools import Pool

Body: TypeAlias = bytes | bytearray | memoryview
OnReply: TypeAlias = Callable[["Call", int, memoryview, int], None]
OnFailure: TypeAlias = Callable[["Call", DespinaError], None]


class Call:
    """Made by a door, handed to ``Router.submit``, ended by exactly one callback (none after ``Router.cancel``).

    ``deadline`` is a finite point of the loop's clock (``loop.time()``); ``body`` counts bytes by its ``len`` and must not
    change while the call lives; ``context`` is the frame's small JSON object, ``b""`` for ``{}``.
    ``on_reply(call, header_length, body, flags)`` gets a view that stays valid for as long as it is held.
    Callbacks run on the loop, possibly before ``submit`` returns; they must not block.
    """

    __slots__ = (
        "body",
        "bucket",
        "context",
        "deadline",
        "flags",
        "header_length",
        "hops",
        "id",
        "link",
        "number",
        "on_failure",
        "on_reply",
        "pool",
        "ref",
        "retried",
        "returns",
        "since",
        "size",
    )

    def __init__(
        self,
        ref: Ref,
        body: Body,
        header_length: int = NO_HEADER,
        flags: int = 0,
        hops: int = 0,
        context: bytes = b"",
        *,
        deadline: float,
        on_reply: OnReply,
        on_failure: OnFailure,
    ) -> None:
        self.ref = ref
        self.body = body
        self.header_length = header_length
        self.flags = flags
        self.hops = hops
        self.context = context
        self.deadline = deadline
        self.on_reply = on_reply
        self.on_failure = on_failure

        # The router's own notes; nobody else writes them. Those without a value here are written when the call is taken.
        self.pool: Pool | None = None
        """Set while the caller still waits for an answer."""
        self.link: Link | None = None
        """Set while the call lies with a replica."""
        self.returns = 0
        """How often a replica gave it back, or was lost before it started it."""
        self.retried = False
        """Whether it has been begun by a replica that was then lost."""
        self.id: int
        """Its frame id on ``link``."""
        self.number: int
        """Order of arrival at the router."""
        self.since: float
        """When it arrived (loop time)."""
        self.size: int
        """Bytes it holds of the router's bound on bytes in flight."""
        self.bucket: set[Call] | None
        """Its place among the deadlines."""

    @property
    def waiting(self) -> bool:
        """Whether the caller still waits for an answer."""
        return self.pool is not None

    def abandon(self) -> None:
        """Let go of what the caller gave, while the frame id still lies with a replica."""
        self.body = b""
        self.on_reply, self.on_failure = _nobody_replied, _nobody_failed


def _nobody_replied(_call: Call, _header_length: int, _body: memoryview, _flags: int) -> None:
    pass


def _nobody_failed(_call: Call, _error: DespinaError) -> None:
    pass
