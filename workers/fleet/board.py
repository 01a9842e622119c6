"""The board: where routers write what they see, and the autoscaler reads it. A Redis or Valkey server; nothing on it is the only
copy of anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

import redis.asyncio
from redis.exceptions import RedisError

from functions.errors import BoardUnreachable, InvalidRequest
from functions.names import Ref, parse_ref
from workers.fleet.observation import Observation

Sighting = dict[Ref, Observation]
PREFIX = "despina:observations:"
TIMEOUT_S = 2.0
_PAGE = 500

A = TypeVar("A")


class Board(Protocol):
    """What a board promises. Every method raises BoardUnreachable, within seconds, when it does not answer."""

    async def publish(self, source: str, observations: Mapping[Ref, Observation], ttl_s: float) -> None:
        """Put in the place of what ``source`` published before; it disappears after ``ttl_s`` seconds. An empty one says: alive,
        and no calls."""

    async def observations(self) -> dict[str, Sighting]:
        """Source → what it published last, of all that live."""

    async def close(self) -> None: ...


class RedisBoard:
    """Over the Redis 7.0 command set: one string key a source, with its time to live."""

    def __init__(self, client: redis.asyncio.Redis, url: str) -> None:
        self._client = client
        self._url = url

    async def publish(self, source: str, observations: Mapping[Ref, Observation], ttl_s: float) -> None:
        text = json.dumps({str(ref): asdict(seen) for ref, seen in observations.items()}, separators=(",", ":"))
        await self._answer(self._client.set(PREFIX + source, text, px=max(1, int(ttl_s * 1000))))

    async def observations(self) -> dict[str, Sighting]:
        texts = await self._answer(self._read())
        return {source: _sighting(text) for source, text in texts.items()}

    async def close(self) -> None:
        await self._client.aclose()

    async def _read(self) -> dict[str, bytes | str]:
        keys = [key async for key in self._client.scan_iter(match=PREFIX + "*", count=_PAGE)]
        texts = await self._client.mget(keys) if keys else []
        return {key.decode().removeprefix(PREFIX): text for key, text in zip(keys, texts, strict=True) if text is not None}

    async def _answer(self, asked: Awaitable[A]) -> A:
        try:
            return await asked
        except (RedisError, OSError) as error:
            raise BoardUnreachable(f"the board at {self._url} did not answer: {error}") from error
        finally:
            # Cancelled at the wrong moment, the client library answers with an error of its own, or as if nothing had happened.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError


def open_board(url: str) -> RedisBoard:
    """``redis://host:port/0``, ``rediss://…`` or ``unix:///path``. Connects at first use. Raises InvalidRequest for another URL."""
    try:
        client = redis.asyncio.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
    except ValueError as error:
        raise InvalidRequest(f"the board's URL is redis://host:port/0, rediss://… or unix:///path: {error}") from None
    return RedisBoard(client, _without_password(url))


def _sighting(text: bytes | str) -> Sighting:
    fields: dict[str, dict[str, Any]] = json.loads(text)
    return {parse_ref(ref): Observation(**seen) for ref, seen in fields.items()}


def _without_password(url: str) -> str:
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"
