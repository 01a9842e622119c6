"""The paths that a bundle may have, and how many: one place for folders that are walked and archives that are unpacked.

A path is relative, ``/`` between its parts, UTF-8, the same on every file system: no two that differ only in case or in how
an accent is composed, no control characters, no backslash.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from functions.errors import BundleRefused, TooLarge

SKIPPED = "__pycache__"
"""A folder of this name is no part of a bundle, wherever it lies."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME_BYTES = 255
"""Longest single name that Linux file systems hold."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one bundle may hold, unpacked."""

    files: int = 10_000
    """Files and folders together."""
    depth: int = 32
    """Parts of a path."""
    path_bytes: int = 512
    """Of one path, as UTF-8."""
    total_bytes: int = 4 << 30
    """Of all files together."""
    ratio: int = 200
    """How many times its own size an archive may unpack to …"""
    ratio_floor: int = 64 << 20
    """… asked only of what unpacks to more bytes than this, since a small file may be anything."""


def checked(path: str, limits: Limits) -> tuple[str, ...]:
    """The parts of a safe path. Raises BundleRefused."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise BundleRefused(f"the name {path[:200]!a} is not UTF-8", fix="rename it") from None
    shown = repr(path[:200])
    if size > limits.path_bytes:
        raise BundleRefused(f"the path {shown} has {size} bytes", fix=f"at most {limits.path_bytes}")
    if path.startswith("/"):
        raise BundleRefused(f"the path {shown} is absolute", fix="pack the folder with relative paths")
    if _CONTROL.search(path) or "\\" in path:
        raise BundleRefused(f"the path {shown} has a control character or a backslash", fix="rename it; '/' separates folders")
    parts = tuple(path.split("/"))
    if any(part in ("", ".", "..") for part in parts):
        raise BundleRefused(f"the path {shown} has an empty part, '.' or '..'", fix="pack the folder from inside, with plain paths")
    if len(parts) > limits.depth:
        raise BundleRefused(f"the path {shown} is {len(parts)} deep", fix=f"at most {limits.depth}")
    if any(len(part.encode()) > _NAME_BYTES for part in parts):
        raise BundleRefused(f"the path {shown} has a name of more than {_NAME_BYTES} bytes", fix="rename it")
    return parts


class Tree:
    """The paths of one bundle as they are met. Each ``add`` checks the path, and the path against all before it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kinds: dict[str, str] = {}
        self._spelled: dict[str, str] = {}
        self._entries = 0
        self._bytes = 0

    def add_file(self, path: str) -> str | None:
        """The path to write, or None when it lies in a skipped folder. Raises BundleRefused, or TooLarge over the limit of files."""
        return self._add(path, "file")

    def add_folder(self, path: str) -> str | None:
        """As add_file, for a folder, which may be met more than once."""
        return self._add(path, "folder")

    def add_bytes(self, count: int) -> None:
        """Raises TooLarge when the bundle has grown over its limit."""
        self._bytes += count
        if self._bytes > self._limits.total_bytes:
            raise TooLarge(f"the bundle has more than {self._limits.total_bytes} bytes unpacked, which is the limit")

    @property
    def top(self) -> dict[str, str]:
        """What lies at the top: name → ``file`` or ``folder``."""
        return {path: kind for path, kind in self._kinds.items() if "/" not in path}

    def _add(self, path: str, kind: str) -> str | None:
        parts = checked(path, self._limits)
        self._entries += 1
        self._check_count(self._entries)
        if SKIPPED in parts[:-1] or (kind == "folder" and parts[-1] == SKIPPED):
            return None
        for end in range(1, len(parts)):
            self._enter("/".join(parts[:end]), "folder")
        if kind == "file" and self._kinds.get(path) == "file":
            raise BundleRefused(f"the path {path!r} is there twice", fix="keep one")
        self._enter(path, kind)
        return path

    def _enter(self, path: str, kind: str) -> None:
        known = self._kinds.get(path)
        if known is None:
            self._check_count(len(self._kinds) + 1)
            folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
            other = self._spelled.setdefault(folded, path)
            if other != path:
                raise BundleRefused(f"the paths {other!r} and {path!r} are the same on some file systems", fix="rename one of them")
            self._kinds[path] = kind
        elif known != kind:
            raise BundleRefused(f"the path {path!r} is a file and a folder", fix="rename one of them")

    def _check_count(self, count: int) -> None:
        if count > self._limits.files:
            raise TooLarge(f"the bundle has more than {self._limits.files} files and folders, which is the limit")
