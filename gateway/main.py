"""The gateway process: ``python -m gateway.main -``, settings as JSON on standard input. Builds all of the HTTP door, knows everybody.

It inherits the listening socket, so that no client sees a closed port while this process is started again. It prints one line of
JSON, ``{"ready": {"pid": n}}``, when it serves. SIGTERM and SIGINT are only noted; then the loop drains and exits 0.
``DESPINA_ADMIN_TOKEN`` is read from the environment: a process's arguments are everybody's to see.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shutil
import signal
import socket
import time
from functools import partial
from pathlib import Path

import uvicorn
from pydantic import BaseModel, ConfigDict, Field

from functions.errors import DespinaError
from functions.names import Ref, parse_ref
from functions.paths import Limits
from gateway.admit import Gate
from gateway.app import create
from gateway.express import Express
from gateway.lane import Lane
from gateway.parts import Parts
from gateway.settings import LOOPBACK, HttpLimits
from registry.service import Registry
from registry.stores import open_store
from workers.fleet.board import open_board
from workers.fleet.node_client import NodeAddress
from workers.fleet.nodes import Nodes
from workers.fleet.reporter import report
from workers.fleet.rollout import Rollout
from workers.fleet.router import Router, RouterSettings
from workers.fleet.terms import Terms
from workers.node.entry import run_process
from workers.node.http_server import HttpServer
from workers.node.inspection import inspect
from workers.process import page as pages

log = logging.getLogger(__name__)

REFRESH_S = 1.0
"""How often it is looked what other processes have written to the store."""
SWEEP_S = 3600.0
GC_THRESHOLD = 10_000
"""Container objects made and not freed before the collector looks at the young ones (CPython: 700)."""
NODE_WAIT_S = 30.0


class GatewaySettings(BaseModel):
    """What ``python -m gateway.main`` is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listener: int = Field(description="File descriptor of the listening socket, inherited.")
    host: str = Field(description="The address it is bound to.")
    hosts: tuple[str, ...] = Field(default=(), description="Further host names by which routes that change things may be called.")
    tls_cert: Path | None = Field(default=None, description="PEM file with the certificate chain.")
    tls_key: Path | None = Field(default=None, description="PEM file with its private key.")
    http: HttpLimits = Field(default_factory=HttpLimits, description="Limits of the HTTP server.")
    store: str = Field(description="URL of the store of versions and tags.")
    board: str = Field(description="URL of the board.")
    staging: Path = Field(description="Directory for what is being uploaded; emptied at the start.")
    upload_mb: int = Field(ge=1, description="Most MiB of one upload, packed and unpacked.")
    pages: Path = Field(description="Directory of the machine's shared pages.")
    node: str = Field(description="Path of the node's control socket.")
    node_token: str = Field(min_length=16, description="What the node's control socket asks for.")
    drain_s: float = Field(gt=0, description="Seconds that running requests get at the end.")


class _Server(HttpServer):
    """Says when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serves = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serves.set()


class Gateway:
    """One gateway, assembled. Made on the loop that runs it."""

    def __init__(self, settings: GatewaySettings, registry: Registry, token: str | None) -> None:
        loop = asyncio.get_running_loop()
        self._settings = settings
        self._registry = registry
        path = str(settings.pages / f"gateway-{os.getpid()}")
        pages.create(path)
        page = pages.Page(path)
        catalog = registry.catalog
        self.nodes = Nodes([NodeAddress(f"unix:{settings.node}", settings.node_token)])
        self.router = Router(self.nodes, self._terms, self._resolve, page, RouterSettings(bytes_in_flight=settings.http.bodies_mb << 20))
        hosts = LOOPBACK | {settings.host.lower(), *(host.lower() for host in settings.hosts)}
        gate = Gate(catalog, loop.time, token=token, hosts=hosts, any_host=token is not None and not settings.hosts)
        self.lane = Lane(gate, self.router, settings.http, page)
        limits = Limits(total_bytes=settings.upload_mb << 20)
        rollout = Rollout(registry, self.nodes, partial(inspect, limits=limits), settings.staging)
        self.parts = Parts(gate, registry, self.nodes, rollout, settings.staging, settings.upload_mb << 20)
        self.server = _Server(
            uvicorn.Config(
                create(self.parts),
                http=partial(Express, lane=self.lane),  # type: ignore[arg-type]  # uvicorn only calls it
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                backlog=4096,
                timeout_graceful_shutdown=max(1, round(settings.drain_s)),
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )

    async def watch_store(self) -> None:
        """See what other processes write, and remove what nobody needs any more; for as long as this runs."""
        said, swept = "", time.monotonic()
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await asyncio.to_thread(self._registry.catalog.refresh)
                if time.monotonic() - swept > SWEEP_S:
                    swept = time.monotonic()
                    log.info("store_swept %s", await asyncio.to_thread(self._registry.sweep))
            except DespinaError as error:  # What is known already is served on; one line for each new reason.
                if str(error) != said:
                    log.warning("store_unreadable code=%s error=%s", error.code, error)
                said = str(error)
            else:
                said = ""

    def _terms(self, ref: Ref) -> Terms:
        record = self._registry.catalog.peek(*ref)
        return Terms.of(record.manifest, self._registry.catalog.scale(ref.name)) if record else Terms()

    def _resolve(self, caller: Ref, name: str) -> Ref:
        """``NAME@V`` is a locked, shared callee; ``NAME`` one that only the running code knew: where ``live`` points now."""
        if "@" in name:
            return parse_ref(name)
        ref = self._registry.catalog.reached(name)
        log.debug("drift caller=%s callee=%s", caller, ref)
        return ref


async def serve(settings: GatewaySettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError and DespinaError when it cannot start."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await asyncio.to_thread(_empty, settings.staging)
    registry = Registry(open_store(settings.store), time.time)
    await asyncio.to_thread(registry.catalog.load)
    gateway = Gateway(settings, registry, os.environ.get("DESPINA_ADMIN_TOKEN"))
    gateway.nodes.start()
    await gateway.nodes.wait_connected(NODE_WAIT_S)
    listener = socket.socket(fileno=settings.listener)
    # It came by inheritance; what this process spawns, the inspection of strangers' bundles above all, must not accept from it.
    listener.set_inheritable(False)
    board = open_board(settings.board)
    async with asyncio.TaskGroup() as group:
        watching = [
            group.create_task(gateway.watch_store()),
            group.create_task(report(board, f"gateway-{os.getpid()}", gateway.router.observations)),
        ]
        serving = group.create_task(gateway.server.serve([listener]))
        await gateway.server.serves.wait()
        _settle_heap()
        print(json.dumps({"ready": {"pid": os.getpid()}}), flush=True)
        log.info("gateway_ready")
        await stop.wait()
        log.info("gateway_draining")
        gateway.parts.draining = gateway.lane.draining = True
        gateway.server.should_exit = True
        await serving
        await gateway.router.close(1.0)
        await gateway.nodes.close()
        for task in watching:
            task.cancel()
    await board.close()
    log.info("gateway_stopped")


def _settle_heap() -> None:
    """Take what start-up made, hundreds of thousands of objects that stay, out of the collector's sight, and let it look less often at
    what calls make: nearly all of that is freed by its last reference."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def _empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, mode=0o700)


def main() -> None:
    run_process("gateway", GatewaySettings, serve)


if __name__ == "__main__":
    main()
