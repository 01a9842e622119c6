"""A closure loaded in the test's own process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from functions.protocol.values import Request, Response
from workers.process import page
from workers.process.closure import Closure
from workers.process.outcalls import Outcalls
from workers.process.page import Page, PageReader
from workers.process.spec import MemberSpec, ReplicaSpec


class Loaded:
    """``ask`` as a caller inside the process would."""

    def __init__(self, closure: Closure, path: str) -> None:
        self.closure, self._path = closure, path

    def ask(self, *requests: Request) -> list[Response]:
        return self.closure.root.ask(list(requests))

    def counters(self, model: str) -> dict[str, float]:
        reader = PageReader(self._path)
        try:
            return {
                "/".join([sample.family, *[sample.labels[key] for key in ("reason", "size") if key in sample.labels]]): sample.value
                for sample in reader.samples()
                if sample.labels["model"] == model
            }
        finally:
            reader.close()


@contextmanager
def loaded(folder: Path, members: Sequence[MemberSpec], outcalls: Outcalls | None = None) -> Iterator[Loaded]:
    path = str(folder / "page")
    page.create(path)
    closure = Closure(ReplicaSpec("t", tuple(members), "00" * 32, 1, path), Page(path), outcalls or Outcalls())
    closure.libraries()
    closure.load()
    closure.warm_up()
    try:
        yield Loaded(closure, path)
    finally:
        closure.close()
