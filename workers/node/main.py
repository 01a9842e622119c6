"""The node process: ``python -m workers.node.main '<settings as JSON>'``. Builds everything of one machine, knows everybody.

It prints one line of JSON, ``{"ready": {"metrics_port": n, "pid": n}}``, when it serves. SIGTERM and SIGINT are only noted; then
the loop drains the replicas, ends the zygote and exits 0. Exit code 2 says that a setting cannot be used: a port in use, a
directory that cannot be written.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import secrets
import signal
from collections.abc import Mapping
from typing import Any

from functions.errors import from_wire
from functions.names import Ref
from registry.cache import Cache
from registry.catalog import Catalog
from registry.stores import open_store
from workers.backends import BACKENDS
from workers.node import machine
from workers.node.capacity import Capacity
from workers.node.entry import run_process
from workers.node.guard import Guard
from workers.node.messages import ReplicaEvent, State, VersionEvent
from workers.node.metrics import NodeMetrics
from workers.node.metrics_server import MetricsServer
from workers.node.output import Outputs
from workers.node.pages import Pages
from workers.node.plan import Planner
from workers.node.rooms import Rooms
from workers.node.server import Server
from workers.node.settings import Settings
from workers.node.statistics import model_stats
from workers.node.supervisor import Supervisor
from workers.node.zygotes import Zygotes

log = logging.getLogger(__name__)


class Node:
    """One machine, assembled; keeps the promise of ``server.Node``. Made on the loop that runs it."""

    def __init__(self, settings: Settings, guard: Guard) -> None:
        self._settings = settings
        self._outputs = Outputs(settings.logs)
        self._pages = Pages(settings.run / "pages")
        self._pages.directory.mkdir(parents=True, exist_ok=True)
        self._pages.fold_left()
        rooms = Rooms(settings.run, guard.environment, settings.start_s)
        self.zygotes = Zygotes(
            guard,
            rooms.environment,
            runtime=settings.runtime,
            preload=_preload(),
            output=str(settings.logs / "zygote.log"),
            on_exit=lambda id, status: self.supervisor.exited(id, status),
        )
        store = open_store(settings.store)
        cache = Cache(store, settings.cache, settings.cache_bytes, in_use=lambda: self.supervisor.in_use)
        self.supervisor = Supervisor(
            Planner(Catalog(store), cache).plan,
            self.zygotes,
            rooms,
            self._pages,
            self._outputs,
            Capacity(settings.processes, settings.memory_bytes),
            starts=settings.starts,
            drain_s=settings.drain_s,
            on_event=self._on_event,
        )
        self.server = Server(self, settings.token)
        self.metrics = NodeMetrics(self._pages, self.supervisor.replicas)

    def hello(self) -> Mapping[str, Any]:
        return {"id": self._settings.id, "cores": machine.cores(), "memory_bytes": self._settings.memory_bytes, "pid": os.getpid()}

    def want(self, client: str, ref: Ref, count: int, ttl_s: float) -> int:
        return self.supervisor.want(client, ref, count, ttl_s)

    def replicas(self, name: str | None) -> list[ReplicaEvent]:
        return self.supervisor.replicas(name)

    def events(self) -> list[ReplicaEvent | VersionEvent]:
        return self.supervisor.events()

    def statistics(self, name: str | None, version: int | None) -> list[dict[str, Any]]:
        return model_stats(self._pages.samples(), name, version)

    def logs(self, ref: Ref, lines: int) -> list[str]:
        return self._outputs.tail(str(ref), lines)

    def reset(self, ref: Ref) -> None:
        self.supervisor.reset(ref)

    def _on_event(self, event: ReplicaEvent | VersionEvent) -> None:
        if isinstance(event, ReplicaEvent) and event.state is State.READY:
            self.metrics.started(event)
        elif isinstance(event, ReplicaEvent) and event.state is State.FAILED:
            self.metrics.died(event, from_wire(event.wire, "").code)
        self.server.publish(event)


async def serve(settings: Settings) -> None:
    """Run a node until SIGTERM or SIGINT. Raises OSError and DespinaError when it cannot start."""
    for directory in (settings.run, settings.cache, settings.logs, settings.control.parent):
        directory.mkdir(parents=True, exist_ok=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # The node's own guard leaves the node alone: only what the node started carries the longer token.
    guard = Guard.start(f"{settings.instance}.{secrets.token_hex(8)}")
    try:
        node = Node(settings, guard)
        metrics = MetricsServer(node.metrics, settings.metrics_host, settings.metrics_port)
        await node.server.start(settings.control)
        node.zygotes.start()
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(_tick(node, guard))
            metrics.start(group)
            print(json.dumps({"ready": {"metrics_port": metrics.port, "pid": os.getpid()}}), flush=True)
            log.info("node_ready control=%s metrics_port=%d", settings.control, metrics.port)
            await stop.wait()
            log.info("node_stopping")
            await node.supervisor.close()
            await node.zygotes.close()
            await node.server.close()
            await metrics.close()
            ticking.cancel()
        log.info("node_stopped")
    finally:
        guard.close()


async def _tick(node: Node, guard: Guard) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(node.supervisor.run())
        while True:
            await asyncio.sleep(1.0)
            if guard.ensure():
                log.error("guard_replaced pid=%d", guard.pid)


def _preload() -> tuple[str, ...]:
    """The modules of the backends whose library is installed."""
    return tuple(entry.module for entry in BACKENDS.values() if not entry.library or importlib.util.find_spec(entry.library))


if __name__ == "__main__":
    run_process("node", Settings, serve)
