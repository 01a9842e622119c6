"""The controller process: ``python -m workers.fleet.controller '<settings as JSON>'``. Scales versions by what routers report to the board.

It prints one line of JSON, ``{"ready": {"pid": n}}``, when it has read the store; it does not wait for nodes or the board. SIGTERM
and SIGINT end it with exit code 0; its leases end by themselves. Losing the board or the store stops new decisions, and nothing
else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from functions.errors import BoardUnreachable, DespinaError, StoreUnreachable
from functions.names import LIVE, Ref
from registry.catalog import Catalog
from registry.stores import open_store
from workers.fleet.autoscaler import Autoscaler
from workers.fleet.board import Board, Sighting, open_board
from workers.fleet.decide import Policy
from workers.fleet.node_client import NodeAddress
from workers.fleet.nodes import Nodes
from workers.fleet.policies import policy, scale_of
from workers.node.entry import run_process

log = logging.getLogger(__name__)


class NodeSettings(BaseModel):
    """One node."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = Field(description="Its control socket: unix:/path or tcp:host:port.")
    token: str = Field(min_length=16, description="What it asks for.")


class ControllerSettings(BaseModel):
    """What ``python -m workers.fleet.controller`` is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    board: str = Field(description="URL of the board.")
    store: str = Field(description="URL of the store of versions and tags.")
    nodes: tuple[NodeSettings, ...] = Field(min_length=1, description="The nodes to scale on.")
    every_s: float = Field(default=1.0, gt=0, le=10, description="Seconds between two decisions.")


class Controller:
    """One controller, assembled. Made on the loop that runs it."""

    def __init__(self, settings: ControllerSettings, catalog: Catalog, board: Board) -> None:
        self._every_s = settings.every_s
        self._catalog = catalog
        self._board = board
        self._nodes = Nodes(NodeAddress(node.address, node.token) for node in settings.nodes)
        self._autoscaler = Autoscaler(self._nodes, self._policy, self._floors)
        self._policies: dict[Ref, tuple[Mapping[str, Any], int, Policy]] = {}
        """With what they were made from: a version never changes, its scale and the machines do."""
        self._lost: set[str] = set()

    async def run(self) -> None:
        """Decide every ``every_s`` seconds, until cancelled."""
        self._nodes.start()
        try:
            while True:
                began = time.monotonic()
                await self._refresh()
                self._autoscaler.tick(await self._sightings(), time.monotonic())
                await asyncio.sleep(max(0.0, began + self._every_s - time.monotonic()))
        finally:
            await self._nodes.close()
            await self._board.close()

    async def _sightings(self) -> dict[str, Sighting] | None:
        try:
            sightings = await self._board.observations()
        except BoardUnreachable as error:
            self._say("board", error)
            return None
        self._say("board", None)
        return sightings

    async def _refresh(self) -> None:
        """Versions, tags and scales as others have written them."""
        try:
            await asyncio.to_thread(self._catalog.refresh)
        except StoreUnreachable as error:
            self._say("store", error)
        else:
            self._say("store", None)

    def _say(self, what: str, error: DespinaError | None) -> None:
        """One line when something is lost, one when it is back."""
        if error is not None and what not in self._lost:
            self._lost.add(what)
            log.warning("%s_lost error=%s", what, error)
        elif error is None and what in self._lost:
            self._lost.discard(what)
            log.info("%s_back", what)

    def _policy(self, ref: Ref) -> Policy:
        scale, cores = self._catalog.scale(ref.name), max(1, self._nodes.cores)
        known = self._policies.get(ref)
        if known is None or known[:2] != (scale, cores) or ref.version not in self._catalog.kept(ref.name).versions:
            known = self._policies[ref] = (scale, cores, policy(self._catalog.closure(ref, inside=True), scale, cores))
        return known[2]

    def _floors(self) -> set[Ref]:
        live = {name: self._catalog.tags(name).get(LIVE) for name in self._catalog.functions()}
        reached = {Ref(name, version) for name, tag in live.items() if tag is not None for version in tag.versions}
        return {ref for ref in reached if self._least(ref)}

    def _least(self, ref: Ref) -> int:
        record = self._catalog.peek(*ref)
        return 0 if record is None else int(scale_of(record.manifest, self._catalog.scale(ref.name))["min"])


async def serve(settings: ControllerSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises DespinaError when it cannot start."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    catalog = Catalog(open_store(settings.store))
    await asyncio.to_thread(catalog.load)
    controller = Controller(settings, catalog, open_board(settings.board))
    running = asyncio.create_task(controller.run())
    stopping = asyncio.create_task(stop.wait())
    print(json.dumps({"ready": {"pid": os.getpid()}}), flush=True)
    log.info("controller_ready")
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if running.done():
        running.result()
    running.cancel()
    await asyncio.gather(running, stopping, return_exceptions=True)
    log.info("controller_stopped")


if __name__ == "__main__":
    run_process("controller", ControllerSettings, serve)
