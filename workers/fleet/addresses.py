"""Where a peer listens, as text: ``unix:/path`` or ``tcp:host:port``; and how to reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from functions.errors import InvalidRequest

DIAL_S = 5.0

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def dial(address: str, protocol: Callable[[], P]) -> P:
    """Connect, and return the protocol that ``protocol()`` made. Raises OSError (TimeoutError after DIAL_S), InvalidRequest."""
    loop = asyncio.get_running_loop()
    scheme, _, rest = address.partition(":")
    async with asyncio.timeout(DIAL_S):
        if scheme == "unix" and rest.startswith("/"):
            return (await loop.create_unix_connection(protocol, rest))[1]
        host, colon, port = rest.rpartition(":")
        if scheme == "tcp" and colon and host and port.isascii() and port.isdigit():
            return (await loop.create_connection(protocol, host.strip("[]"), int(port)))[1]
    raise InvalidRequest(f"{address!r} is not an address: unix:/path or tcp:host:port")
