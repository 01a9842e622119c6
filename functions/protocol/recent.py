"""A cache of what was used lately, bounded in entries and in bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Least recently used goes first. The bytes counted are those of the keys. One thread at a time."""

    __slots__ = ("_entries", "_max_bytes", "_max_entries", "size_bytes")

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._entries: OrderedDict[bytes, Value] = OrderedDict()
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> Value | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: bytes, value: Value) -> None:
        """A key longer than the bound in bytes is not kept."""
        if len(key) > self._max_bytes:
            return
        if key not in self._entries:
            self.size_bytes += len(key)
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries or self.size_bytes > self._max_bytes:
            gone, _ = self._entries.popitem(last=False)
            self.size_bytes -= len(gone)
