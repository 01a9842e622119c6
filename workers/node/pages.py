"""All shared pages of this machine, added up: what living processes count and what dead ones had counted.

A process's page lies in one directory: ``replica-<id>`` for a replica, whose death this node hears of, and ``<role>-<pid>``
for another process of the platform (a gateway, the controller), whose death shows in the process table. When a process is
gone its counters are folded into totals, so that a sum never goes down; its gauges go with it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path

from functions.errors import InternalError
from workers.node import census
from workers.process.page import PageReader, Sample

log = logging.getLogger(__name__)

LATEST = frozenset({"despina_last_inference_ms"})
"""Gauges whose sum is the largest of them, and which outlive their process."""
_NAME = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,199}")
"""Of families and labels; Prometheus keeps two underscores at the front for itself."""
_OWNED = re.compile(r"[a-z]+-(\d+)")
Series = tuple[str, tuple[tuple[str, str], ...]]


class Pages:
    """The pages in one directory, and the totals of those that are gone. One owner, one thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._readers: dict[str, PageReader] = {}
        self._totals: dict[Series, Sample] = {}

    def path(self, replica: str) -> str:
        """Where the page of a replica lies."""
        return str(self.directory / f"replica-{replica}")

    def fold(self, replica: str) -> None:
        """The replica is gone: keep its counters, remove its page. Nothing happens for a page that was never made."""
        self._fold(f"replica-{replica}")

    def fold_left(self) -> None:
        """Fold what an earlier node left: none of its replicas lives on."""
        for name in self._names():
            if name.startswith("replica-"):
                self._fold(name)

    def samples(self) -> list[Sample]:
        """Every series of the machine, each once."""
        sums: dict[Series, Sample] = dict(self._totals)
        for name in self._names():
            if _gone(self.directory / name):
                self._fold(name)
                sums = dict(self._totals)
        for name in self._names():
            add(sums, self._read(name))
        return list(sums.values())

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []

    def _read(self, name: str) -> Iterable[Sample]:
        reader = self._readers.get(name)
        try:
            if reader is None:
                reader = self._readers[name] = PageReader(str(self.directory / name))
            return [sample for sample in reader.samples() if well_formed(sample)]
        except FileNotFoundError:
            return ()
        except (InternalError, ValueError, TypeError) as error:
            # A page being made at this moment, or one an author's code wrote nonsense into: its numbers are lost, nothing else.
            log.warning("page_unreadable page=%s error=%s", name, error)
            return ()

    def _fold(self, name: str) -> None:
        add(self._totals, (sample for sample in self._read(name) if sample.kind == "counter" or sample.family in LATEST))
        reader = self._readers.pop(name, None)
        if reader is not None:
            reader.close()
        (self.directory / name).unlink(missing_ok=True)


def add(sums: dict[Series, Sample], samples: Iterable[Sample]) -> None:
    """Add samples to ``sums``, by family and labels; of those in LATEST the largest is kept."""
    for sample in samples:
        key = (sample.family, tuple(sorted(sample.labels.items())))
        known = sums.get(key)
        if known is None:
            sums[key] = sample
        elif sample.family in LATEST:
            sums[key] = known._replace(value=max(known.value, sample.value))
        else:
            sums[key] = known._replace(value=known.value + sample.value)


def well_formed(sample: Sample) -> bool:
    """Whether a series can be shown. Author's code runs in the process that writes a page, and may write anything into it."""
    return (
        isinstance(sample.family, str)
        and _NAME.fullmatch(sample.family) is not None
        and sample.kind in ("counter", "gauge")
        and isinstance(sample.labels, dict)
        and all(isinstance(value, str) and _NAME.fullmatch(name) for name, value in sample.labels.items())
    )


def _gone(path: Path) -> bool:
    """Whether the process that wrote ``<role>-<pid>`` has ended. A process that began after the page was last written has only
    inherited the number."""
    owner = _OWNED.fullmatch(path.name)
    if owner is None or path.name.startswith("replica-"):
        return False
    began = census.began(int(owner[1]))
    try:
        return began is None or began > path.stat().st_mtime + 1.0
    except FileNotFoundError:
        return True
