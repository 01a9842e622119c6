"""The promise every object store keeps. Keys come from ``registry/keys.py``; values are bytes, or files for large ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from functions.errors import InternalError

KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
MAX_KEY = 1024
"""Longest key in bytes, as in S3."""


class Entry(NamedTuple):
    """One object as a listing shows it. ``modified_s`` is seconds since the epoch, by the store's own clock."""

    key: str
    size: int
    modified_s: float


class Store(Protocol):
    """Objects by key. Safe to use from any thread and from many processes at once.

    Every write is atomic and durable: a reader sees the whole object or none of it, and what a call that returned has written
    outlives a crash of the machine. A writer killed half-way leaves nothing that a reader can see.

    All methods raise StoreUnreachable when the store does not answer or has no room; those that need the object raise NotFound.
    """

    url: str

    def get(self, key: str) -> bytes:
        """The object's bytes. Raises NotFound."""
        ...

    def fetch(self, key: str, path: Path) -> None:
        """Write the object to the new file ``path``, in pieces, never whole in memory. Raises NotFound."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write the object, over an older one if there is one."""
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Like put, with the bytes of a file, in pieces."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write the object only if the key is free. Of any number of racing creates exactly one answers True."""
        ...

    def size(self, key: str) -> int | None:
        """The object's size in bytes, None if there is no such object."""
        ...

    def list(self, prefix: str) -> Iterator[Entry]:
        """All objects whose key begins with ``prefix``, in the order of their keys' bytes. An object written or deleted while the
        listing runs may be in it or not; every other object is in it exactly once."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        ...

    def touch(self, key: str) -> None:
        """Set the object's modification time to now. Raises NotFound."""
        ...


def checked(key: str) -> str:
    """``key`` if any store can hold it. Raises InternalError: keys are made by us, never by a caller."""
    if len(key) > MAX_KEY or not KEY.fullmatch(key):
        raise InternalError(f"{key[:200]!r} is not a store key")
    return key
