"""``despina up``: the parent of one machine's processes. It owns the data directory, the listening socket and the guard.

    up ── guard        kills all that is left when this process is gone, for whatever reason
       ├─ board        a key-value server on a unix socket, unless --board names one
       ├─ node         zygotes and replicas, metrics
       ├─ controller   the autoscaler
       └─ gateway      HTTP

They start together and wait for each other where they must; they stop in the reverse order of this list. One that dies is started
again, later with each death. A second signal while they stop ends them at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from functions.errors import DespinaError, InvalidRequest
from gateway import programs
from gateway.child import Child
from gateway.place import Place
from gateway.settings import Settings
from registry.stores import open_store
from workers.fleet.board import open_board
from workers.node.guard import Guard

log = logging.getLogger(__name__)

GUARD_LOOK_S = 1.0
"""How often it is looked whether somebody killed the guard."""
SETTLE_S = 5.0
"""Seconds beyond drain_s that all children together have to end in."""
Deploy = Callable[[str, Sequence[Path]], None]
"""Deploys bundles to the server at a URL as one release; raises DespinaError. It runs in a thread."""


def run(settings: Settings, bundles: Sequence[Path], deploy: Deploy) -> int:
    """Run the platform until SIGTERM or SIGINT; the exit code: 0 after an orderly stop, 1 when what was to be deployed was refused,
    2 when the settings or this machine do not allow it, after one clear line on standard error."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # A line for each of its requests is not this process's story.
    try:
        place = Place(settings.data)
    except DespinaError as error:
        return _refuse(error)
    try:
        check(settings)
        with listen(settings.host, settings.http_port, "HTTP") as listener:
            # The node binds this one; here a refusal reads better, and port 0 becomes one that stays over restarts.
            with listen(settings.host, settings.metrics_port, "metrics") as probe:
                settings = settings.model_copy(update={"metrics_port": probe.getsockname()[1]})
            return asyncio.run(_Up(settings, place, listener).run(bundles, deploy))
    except DespinaError as error:
        return _refuse(error)
    finally:
        place.close()


def check(settings: Settings) -> None:
    """Raises InvalidRequest for what can be told to be wrong before anything runs: the certificate, the URL of the store."""
    open_store(settings.store_url)
    if settings.tls_cert is not None and settings.tls_key is not None:
        for path in (settings.tls_cert, settings.tls_key):
            if not os.access(path, os.R_OK):
                raise InvalidRequest(f"{path} cannot be read; tls_cert and tls_key are PEM files")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
        except ssl.SSLError as error:
            raise InvalidRequest(f"{settings.tls_cert} and {settings.tls_key} are no certificate and its key: {error}") from None


def listen(host: str, port: int, what: str) -> socket.socket:
    """A listening socket. Raises InvalidRequest when the port is in use or the address is not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=4096)
    except OSError as error:
        reason = "is in use" if error.errno == 98 else f"cannot be used: {error.strerror}"
        raise InvalidRequest(f"port {port} of {host} ({what}) {reason}") from None


class _Up:
    """One run, on the parent's loop."""

    def __init__(self, settings: Settings, place: Place, listener: socket.socket) -> None:
        self._settings = settings
        self._place = place
        self._listener = listener
        self._instance = secrets.token_hex(16)
        self._node_token = secrets.token_hex(32)
        self._children: list[Child] = []
        self._keeping: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._stopping = False

    async def run(self, bundles: Sequence[Path], deploy: Deploy) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)
        guard = Guard.start(self._instance)
        watching = asyncio.ensure_future(_watch(guard))
        try:
            return await self._serve(guard, bundles, deploy)
        finally:
            watching.cancel()
            await self._end()
            log.info("stopping: guard")
            await asyncio.to_thread(guard.close)
            log.info("stopped")

    def _signalled(self) -> None:
        if self._stopping:
            log.warning("a second signal: what still runs is killed")
            for child in self._children:
                child.kill()
        self._stop.set()

    async def _serve(self, guard: Guard, bundles: Sequence[Path], deploy: Deploy) -> int:
        if self._settings.board:
            board = open_board(self._settings.board)
            try:
                await board.observations()
            except DespinaError as error:
                return _refuse(error)
            finally:
                await board.close()
        starting = asyncio.ensure_future(self._start(guard))
        if not await self._unless_stopped(starting):
            return 0
        try:
            metrics_port = starting.result()
        except DespinaError as error:
            return _refuse(error)
        http = f"{self._settings.scheme}://{_authority(self._settings.host, self._listener.getsockname()[1])}"
        if bundles:
            deploying = asyncio.ensure_future(asyncio.to_thread(deploy, http, bundles))
            if not await self._unless_stopped(deploying):
                return 0
            try:
                deploying.result()
            except DespinaError as error:
                sys.stderr.write(f"despina up: {error}\n")
                return 1
        print(f"ready http={http} metrics=http://{_authority(self._settings.host, metrics_port)}/metrics", flush=True)
        await self._stop.wait()
        return 0

    async def _start(self, guard: Guard) -> int:
        """Start every child; the port of the metrics. Raises CapacityError for one that does not serve, with nothing left to start."""
        build = programs.Builder(self._settings, self._place, self._instance, self._node_token, self._listener.fileno())
        board = [] if self._settings.board else [build.board()]
        self._children = [Child(program, guard) for program in (*board, build.node(), build.controller(), build.gateway())]
        starting = [asyncio.ensure_future(child.start()) for child in self._children]
        try:
            facts = dict(zip((child.program.name for child in self._children), await asyncio.gather(*starting), strict=True))
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
        self._keeping = [asyncio.ensure_future(child.keep()) for child in self._children]
        return int(facts["node"]["metrics_port"])

    async def _unless_stopped(self, work: asyncio.Future[Any]) -> bool:
        """Wait for ``work``; False when a signal came first."""
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if work.done():
            return True
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return False

    async def _end(self) -> None:
        self._listener.close()  # The gateway has its own copy: once that is closed too, new connections are refused.
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        self._stopping = True
        loop = asyncio.get_running_loop()
        log.info("stopping: running calls get %g s; a second signal ends them now", self._settings.drain_s)
        # One budget for all: when the gateway has waited it out, nobody waits for what the node still runs.
        deadline = loop.time() + self._settings.drain_s + SETTLE_S
        for child in reversed(self._children):
            log.info("stopping: %s", child.program.name)
            await child.stop(max(1.0, deadline - loop.time()))


async def _watch(guard: Guard) -> None:
    """Somebody may kill the guard: without one, the death of this process would leave the others behind."""
    while True:
        await asyncio.sleep(GUARD_LOOK_S)
        if guard.ensure():
            log.error("the guard was killed; another has taken its place")


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refuse(error: DespinaError) -> int:
    sys.stderr.write(f"despina up: {error}\n")
    return 2
