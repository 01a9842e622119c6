"""``GET /metrics``: a small HTTP server on the node's loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from prometheus_client.registry import Collector

from workers.node.exposition import CONTENT_TYPE, render
from workers.node.http_server import HttpServer

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class MetricsServer:
    """Binds when it is made: OSError for a port in use."""

    def __init__(self, metrics: Collector, host: str, port: int) -> None:
        self._metrics = metrics
        self._socket = socket.create_server((host, port), backlog=64, family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._server = HttpServer(
            uvicorn.Config(
                self._app,
                interface="asgi3",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                http="httptools",
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def start(self, group: asyncio.TaskGroup) -> None:
        """Serve until closed, as a task of ``group``."""
        self._task = group.create_task(self._server.serve([self._socket]))

    async def close(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task

    async def _app(self, scope: Scope, _receive: object, send: Send) -> None:
        if scope["path"] != "/metrics":
            await _respond(send, 404, b"Not Found\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await _respond(send, 405, b"Method Not Allowed\n")
        else:
            await _respond(send, 200, render(self._metrics.collect()))


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
