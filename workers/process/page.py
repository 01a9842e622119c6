"""The shared page: what a process counts, kept in a file its machine maps, so that it survives the process.

A writer (one process) adds series and running batches; readers (the node) map the same file and never write.
Layout, little-endian, in a file of SIZE bytes:

    0       magic u32, version u32, text length u32 (published after the text), series u32
    64      BATCHES slots of 16 + 8 × BATCH_IDS bytes: started ns u64 (CLOCK_MONOTONIC; 0 = idle), count u32, pad u32, call ids u64 …
    VALUES  SERIES values f64
    TEXT    one JSON line a series: [family, kind, {label: value}]; line i names value i

A series is written text first, then the text length: a reader never sees half a name. Values are aligned 8-byte stores.
Call ids are ``link << 48 | frame id``: links are numbered per replica in the order of their HELLOs, from 1.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from functions.errors import InternalError

MAGIC = 0x44535041
LAYOUT = 1
BATCHES = 16
BATCH_IDS = 1024
_HEAD = struct.Struct("<IIII")
_SLOT = struct.Struct("<QII")
_ID = struct.Struct("<Q")
_SLOT_BYTES = _SLOT.size + 8 * BATCH_IDS
SERIES = 8192
VALUES = 64 + BATCHES * _SLOT_BYTES
TEXT = VALUES + 8 * SERIES
SIZE = TEXT + (1 << 20)

_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


class Sample(NamedTuple):
    """One series as read: family name, kind (``counter`` or ``gauge``), labels, value."""

    family: str
    kind: str
    labels: dict[str, str]
    value: float


class Batch(NamedTuple):
    """A batch that is running: when it started (CLOCK_MONOTONIC ns) and the call ids in it."""

    started_ns: int
    calls: tuple[int, ...]


def create(path: str) -> None:
    """Make an empty page at ``path``. Raises FileExistsError, and OSError when the disk is full, with nothing left."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        # Not a sparse file: a write to a hole on a full disk is a SIGBUS, in whichever process it happens.
        os.posix_fallocate(descriptor, 0, SIZE)
        os.pwrite(descriptor, _HEAD.pack(MAGIC, LAYOUT, 0, 0), 0)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


class Page:
    """The writer's side. One process owns it: ``series`` from any thread, a value under its owner's lock; a slot has one thread."""

    def __init__(self, path: str) -> None:
        self._map = _open(path, writable=True)
        whole = memoryview(self._map)
        self.values = whole[VALUES:TEXT].cast("d")
        """Series values: ``page.values[i] += 1`` with the index that :meth:`series` gave."""
        self._adding = threading.Lock()
        self._text = TEXT
        self._count = 0
        self._index: dict[_Key, int] = {}

    def series(self, family: str, labels: dict[str, str], kind: str = "counter") -> int:
        """The index of a series, made if new. Raises InternalError when the page is full."""
        key = (family, tuple(sorted(labels.items())))
        index = self._index.get(key)
        if index is not None:
            return index
        with self._adding:
            index = self._index.get(key)
            return self._add(key, family, labels, kind) if index is None else index

    def _add(self, key: _Key, family: str, labels: dict[str, str], kind: str) -> int:
        line = json.dumps([family, kind, labels], separators=(",", ":")).encode() + b"\n"
        if self._count == SERIES or self._text + len(line) > SIZE:
            raise InternalError(f"a page holds {SERIES} series and {SIZE - TEXT} bytes of names; {family} {labels} is over")
        index = self._count
        self._map[self._text : self._text + len(line)] = line
        self._text += len(line)
        self._count += 1
        self._map[8:16] = struct.pack("<II", self._text - TEXT, self._count)
        self._index[key] = index
        return index

    def start(self, slot: int, calls: Sequence[int], now_ns: int) -> None:
        """Note that the batch of instance ``slot`` starts with these calls; the first BATCH_IDS of them are kept."""
        ids = calls[:BATCH_IDS]
        at = 64 + (slot % BATCHES) * _SLOT_BYTES
        if len(ids) == 1:
            _ID.pack_into(self._map, at + _SLOT.size, ids[0])
        else:
            struct.pack_into(f"<{len(ids)}Q", self._map, at + _SLOT.size, *ids)
        _SLOT.pack_into(self._map, at, now_ns, len(ids), 0)

    def finish(self, slot: int) -> None:
        """Note that the batch of instance ``slot`` has ended."""
        _SLOT.pack_into(self._map, 64 + (slot % BATCHES) * _SLOT_BYTES, 0, 0, 0)


class PageReader:
    """A reader's side; it may outlive the writer."""

    def __init__(self, path: str) -> None:
        self._map = _open(path, writable=False)
        self._names: list[tuple[str, str, dict[str, str]]] = []
        self._parsed = 0

    def samples(self) -> Iterator[Sample]:
        """Every series with its value as of now."""
        (length,) = struct.unpack_from("<I", self._map, 8)
        if length > self._parsed:
            for line in self._map[TEXT + self._parsed : TEXT + length].splitlines():
                self._names.append(tuple(json.loads(line)))
            self._parsed = length
        values = struct.unpack_from(f"<{len(self._names)}d", self._map, VALUES)
        for (family, kind, labels), value in zip(self._names, values, strict=True):
            yield Sample(family, kind, labels, value)

    def running(self) -> list[Batch]:
        """The batches that have started and not ended."""
        batches = []
        for slot in range(BATCHES):
            at = 64 + slot * _SLOT_BYTES
            started, count, _ = _SLOT.unpack_from(self._map, at)
            if started:
                batches.append(Batch(started, struct.unpack_from(f"<{min(count, BATCH_IDS)}Q", self._map, at + _SLOT.size)))
        return batches

    def close(self) -> None:
        self._map.close()


def _open(path: str, *, writable: bool) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
    try:
        if os.fstat(descriptor).st_size != SIZE:
            raise InternalError(f"{path} is not a page: {os.fstat(descriptor).st_size} bytes, not {SIZE}")
        mapped = mmap.mmap(descriptor, SIZE, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
    magic, layout, _, _ = _HEAD.unpack_from(mapped, 0)
    if (magic, layout) != (MAGIC, LAYOUT):
        raise InternalError(f"{path} is not a page of layout {LAYOUT}")
    return mapped
