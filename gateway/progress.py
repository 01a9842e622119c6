"""How the command line shows an upload on its way: a bar for each bundle on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from gateway import tables


class Quiet:
    """Watches an upload and says nothing."""

    def begin(self, name: str, size_bytes: int, missing_bytes: int) -> None: ...

    def sent(self, size_bytes: int) -> None: ...

    def recorded(self, version: Mapping[str, Any]) -> None: ...

    def end(self) -> None: ...


class Bars(Quiet):
    """How many of each bundle's missing bytes have gone out. ``begin`` comes before the others, once a bundle."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID

    def begin(self, name: str, size_bytes: int, missing_bytes: int) -> None:
        note = f"{name} ({tables.size(size_bytes)}, {tables.size(size_bytes - missing_bytes)} there already)"
        self._task = self._progress.add_task(note, total=missing_bytes or None)

    def sent(self, size_bytes: int) -> None:
        self._progress.advance(self._task, size_bytes)

    def recorded(self, version: Mapping[str, Any]) -> None:
        self._progress.update(self._task, description=f"{version['name']} @ {version['version']}", total=1, completed=1)

    def end(self) -> None:
        self._progress.stop()


@contextmanager
def watching(quietly: bool) -> Iterator[Quiet]:
    """Who watches an upload, for the length of it."""
    if quietly or not sys.stderr.isatty():
        yield Quiet()
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=tables.err) as progress:
        yield Bars(progress)
