"""What a replica writes: one append-only file, kept short, and its last lines for the author."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

LIMIT_BYTES = 8 << 20
"""A file over this is cut to its last half."""
KEPT = 5
"""How many files of one version stay after their replicas have ended."""
_TAIL_BYTES = 256 * 1024


class Outputs:
    """The files of one node: ``<directory>/<name>@<version>/<replica>.log``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, version: str, replica: str) -> BinaryIO:
        """A file to append to, the caller's to close. Older files of the version beyond KEPT are removed."""
        folder = self._directory / version
        folder.mkdir(parents=True, exist_ok=True)
        for old in _newest_first(folder)[KEPT - 1 :]:
            old.unlink(missing_ok=True)
        return (folder / f"{replica}.log").open("ab", buffering=0)

    def note(self, version: str, replica: str, text: str) -> None:
        """Add a line of ours, with the time, below what the replica wrote: how it ended. Its author looks for it there."""
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
        with contextlib.suppress(OSError), (self._directory / version / f"{replica}.log").open("ab") as file:
            file.write(f"[despina {stamp}] {text}\n".encode("utf-8", "replace"))

    def trim(self, version: str, replica: str) -> None:
        """Keep the file under its limit while its writer goes on appending to it."""
        path = self._directory / version / f"{replica}.log"
        try:
            if path.stat().st_size <= LIMIT_BYTES:
                return
            with path.open("r+b") as file:
                file.seek(-LIMIT_BYTES // 2, os.SEEK_END)
                rest = file.read(LIMIT_BYTES)
                file.truncate(0)
                file.seek(0)
                file.write(rest)
        except FileNotFoundError:
            return

    def tail(self, version: str, lines: int, replica: str | None = None) -> list[str]:
        """The last lines that one replica of the version wrote, or that all of them wrote, the newest file last."""
        folder = self._directory / version
        paths = reversed(_newest_first(folder)) if replica is None else [folder / f"{replica}.log"]
        return [line for path in paths for line in _tail(path)][-lines:] if lines > 0 else []


def _newest_first(folder: Path) -> list[Path]:
    try:
        dated = [(entry.stat().st_mtime_ns, Path(entry.path)) for entry in os.scandir(folder) if entry.name.endswith(".log")]
    except FileNotFoundError:
        return []
    return [path for _, path in sorted(dated, reverse=True)]


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
