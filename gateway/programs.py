"""What each child of ``despina up`` is run with."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from gateway.child import Fact, Program, says_ready
from gateway.place import Place
from gateway.settings import PREFIX, Settings
from workers.fleet import embedded_board
from workers.node.guard import Guard

_PING_S = 0.01


class Builder:
    """The programs of one run."""

    def __init__(self, settings: Settings, place: Place, instance: str, node_token: str, listener: int) -> None:
        self._settings = settings
        self._place = place
        self._node_token = node_token
        self._instance = instance
        self._listener = listener
        # What configures this process is not for its children; the guard's mark and, for the gateway, the token are.
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._environment[Guard.VARIABLE] = instance

    @property
    def board_url(self) -> str:
        return self._settings.board or f"unix://{self._place.run / 'board.sock'}"

    def board(self) -> Program:
        socket = self._place.run / "board.sock"
        log = self._place.logs / "board.log"

        async def answers(_output: asyncio.StreamReader) -> Fact:
            while not await asyncio.to_thread(embedded_board.answers, socket):
                await asyncio.sleep(_PING_S)
            return {}

        command = embedded_board.command(socket, self._place.board, log)
        return Program("board", command, self._environment, log, answers)

    def node(self) -> Program:
        place, settings = self._place, self._settings
        return self._python(
            "node",
            "workers.node.main",
            {
                "run": str(place.run),
                "cache": str(place.cache),
                "logs": str(place.logs),
                "store": settings.store_url,
                "control": str(place.run / "node.sock"),
                "token": self._node_token,
                "instance": self._instance,
                "metrics_host": settings.host,
                "metrics_port": settings.metrics_port,
                "drain_s": settings.drain_s,
            },
        )

    def controller(self) -> Program:
        return self._python(
            "controller",
            "workers.fleet.controller",
            {
                "board": self.board_url,
                "store": self._settings.store_url,
                "nodes": [{"address": f"unix:{self._place.run / 'node.sock'}", "token": self._node_token}],
            },
        )

    def gateway(self) -> Program:
        place, settings = self._place, self._settings
        token = settings.admin_token
        return self._python(
            "gateway",
            "gateway.main",
            {
                "listener": self._listener,
                "host": settings.host,
                "hosts": settings.hosts,
                "tls_cert": str(settings.tls_cert) if settings.tls_cert else None,
                "tls_key": str(settings.tls_key) if settings.tls_key else None,
                "http": settings.http.model_dump(),
                "store": settings.store_url,
                "board": self.board_url,
                "staging": str(place.staging),
                "upload_mb": settings.upload_mb,
                "pages": str(place.pages),
                "node": str(place.run / "node.sock"),
                "node_token": self._node_token,
                "drain_s": settings.drain_s,
            },
            {f"{PREFIX}ADMIN_TOKEN": token.get_secret_value()} if token else {},
            (self._listener,),
        )

    def _python(
        self, name: str, module: str, settings: Mapping[str, Any], secrets: Mapping[str, str] | None = None, inherits: tuple[int, ...] = ()
    ) -> Program:
        # "-": its settings come by standard input, they hold tokens. The data directory is for who looks at the processes.
        command = [sys.executable, "-P", "-m", module, "-", str(self._place.data)]
        environment = {**self._environment, **(secrets or {})}
        return Program(
            name, command, environment, self._place.logs / f"{name}.log", says_ready, inherits, settings=json.dumps(settings).encode()
        )
