"""One JSON object a line over a stream socket, as a node and its clients speak."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

from functions.errors import ProtocolError
from workers.node.messages import MAX_LINE


class JsonLines(asyncio.Protocol):
    """Calls ``on_line(object)`` for each, and ``on_closed(why)`` once. A line that is too long, no JSON object, or that ``on_line``
    refuses with a ProtocolError ends the connection."""

    def __init__(self, on_line: Callable[[dict[str, Any]], None], on_closed: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._partial = bytearray()
        self._why = "the peer closed the connection"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's name)
        self._transport = None
        self._on_closed(self._why)

    def send(self, message: dict[str, Any]) -> None:
        """Does nothing after the end; ``on_closed`` has told."""
        if self._transport is not None:
            self._transport.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        try:
            for line in whole:
                self._partial += line
                complete, self._partial = bytes(self._partial), bytearray()
                self._on_line(_object(complete))
            self._partial += rest
            if len(self._partial) > MAX_LINE:
                raise ProtocolError(f"a line of more than {MAX_LINE} bytes")
        except ProtocolError as error:
            self._why = str(error)
            self.close()


def _object(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"a line that is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise ProtocolError(f"a line that holds {type(message).__name__}, not an object")
    return message
