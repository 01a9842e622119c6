from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from functions.errors import NotFound
from functions.names import Ref, parse_ref
from tests.workers.fleet.fakes import FakeNodes, FakeReplica
from workers.fleet.router import Router, RouterSettings
from workers.fleet.terms import Terms

MakeReplica = Callable[..., Awaitable[FakeReplica]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the gateway has."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A short directory: a unix socket's path has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="fl"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def nodes() -> FakeNodes:
    return FakeNodes()


def resolve(_caller: Ref, name: str) -> Ref:
    if name.startswith("missing"):
        raise NotFound(f"Request for unknown model: '{name}' is not found")
    return parse_ref(name) if "@" in name else Ref(name, 1)


@pytest.fixture
async def router(nodes: FakeNodes) -> AsyncIterator[Router]:
    settings = RouterSettings(lease_s=0.3, node_wait_s=0.2, tick_s=0.02, bytes_in_flight=10_000)
    router = Router(nodes, lambda _ref: Terms(queue=5, idle_s=0.1), resolve, settings=settings)
    yield router
    await router.close(0.0)


@pytest.fixture
async def replica(sockets: Path) -> AsyncIterator[MakeReplica]:
    made: list[FakeReplica] = []

    async def make(ref: Ref, **options: object) -> FakeReplica:
        made.append(await FakeReplica(sockets / f"r{len(made)}.sock", ref, **options).listen())  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        await each.stop()
