"""The node's control socket: the requests of ``messages`` answered, its events sent to whoever watches."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from functions.errors import DespinaError, InternalError, InvalidRequest, Unauthorized
from functions.names import Ref, function_name
from workers.node.messages import MAX_LINE, ReplicaEvent, VersionEvent

log = logging.getLogger(__name__)

HELLO_S = 10.0
UNREAD_BYTES = 64 << 20
"""A client that leaves so much unread is cut off: it connects again and is told what is."""
MAX_TTL_S = 3600.0
MAX_REPLICAS = 10_000
MAX_LOG_LINES = 10_000


class Node(Protocol):
    """What the server asks of the node."""

    def hello(self) -> Mapping[str, Any]:
        """id, cores, memory_bytes, pid."""

    def want(self, client: str, ref: Ref, count: int, ttl_s: float) -> int: ...

    def replicas(self, name: str | None) -> Iterable[ReplicaEvent]: ...

    def events(self) -> Iterable[ReplicaEvent | VersionEvent]:
        """What a new watcher must hear."""

    def statistics(self, name: str | None, version: int | None) -> list[dict[str, Any]]: ...

    def logs(self, ref: Ref, lines: int) -> list[str]: ...

    def reset(self, ref: Ref) -> None: ...


class Server:
    """One unix socket. Lives on the node's loop."""

    def __init__(self, node: Node, token: str) -> None:
        self._node = node
        self._token = token.encode()
        self._watchers: set[_Client] = set()
        self._clients: set[asyncio.Task[None]] = set()
        self._names = itertools.count(1)
        self._server: asyncio.Server | None = None

    async def start(self, path: Path) -> None:
        """Listen at ``path``; a socket left there by a node that died is replaced. Raises OSError."""
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, path, limit=MAX_LINE)
        path.chmod(0o600)

    def publish(self, event: ReplicaEvent | VersionEvent) -> None:
        """Tell every watcher."""
        if self._watchers:
            line = _line(event.to_json())
            for client in list(self._watchers):
                client.send(line)

    async def close(self) -> None:
        """Cut every connection."""
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        client = _Client(f"client-{next(self._names)}", writer)
        try:
            await self._greet(client, reader)
            while line := await reader.readline():
                self._answer(client, line)
                await writer.drain()
        except (DespinaError, OSError, ValueError, TimeoutError) as error:
            log.warning("client_dropped client=%s reason=%s", client.name, error)
        except asyncio.CancelledError:
            pass  # the server closes; nobody waits for this task's result
        finally:
            self._watchers.discard(client)
            self._clients.discard(task)
            writer.transport.abort() if client.cut else writer.close()

    async def _greet(self, client: _Client, reader: asyncio.StreamReader) -> None:
        async with asyncio.timeout(HELLO_S):
            line = await reader.readline()
        if not line:
            return
        request = _request(line)
        given = request.get("token", "")
        if request.get("op") != "hello" or not isinstance(given, str) or not hmac.compare_digest(given.encode(), self._token):
            error = Unauthorized("the first request must be hello with this node's token")
            client.send(_line({"seq": request.get("seq"), "error": {"wire": error.wire, "message": error.message}}))
            raise error
        name = request.get("client")
        if isinstance(name, str) and name:
            client.name = f"named {name[:100]}"
        client.send(_line({"seq": request.get("seq"), "ok": dict(self._node.hello())}))

    def _answer(self, client: _Client, line: bytes) -> None:
        request = _request(line)
        seq = request.get("seq")
        try:
            answer = {"seq": seq, "ok": self._do(client, request)}
        except DespinaError as error:
            answer = {"seq": seq, "error": {"wire": error.wire, "message": error.message}}
        except Exception:  # one request's bug must not end the client's connection, which would lose it all events
            log.exception("request_broken op=%s", request.get("op"))
            message = f"the node could not answer {str(request.get('op'))[:40]!r}; its log says why"
            answer = {"seq": seq, "error": {"wire": InternalError.wire, "message": message}}
        client.send(_line(answer))
        if request.get("op") == "watch" and client not in self._watchers:
            self._watchers.add(client)
            for event in self._node.events():
                client.send(_line(event.to_json()))

    def _do(self, client: _Client, request: Mapping[str, Any]) -> Any:
        operations: dict[str, Callable[[_Client, Mapping[str, Any]], Any]] = {
            "watch": lambda _client, _request: None,
            "want": self._want,
            "replicas": lambda _, request: [event.to_json() for event in self._node.replicas(_name(request))],
            "statistics": lambda _, request: self._node.statistics(_name(request), _version(request)),
            "logs": lambda _, request: self._node.logs(_ref(request), _whole(request, "lines", 0, MAX_LOG_LINES)),
            "reset": lambda _, request: self._node.reset(_ref(request)),
        }
        operation = operations.get(str(request.get("op")))
        if operation is None:
            raise InvalidRequest(f"unknown op {str(request.get('op'))[:40]!r}; known: hello, {', '.join(operations)}")
        return operation(client, request)

    def _want(self, client: _Client, request: Mapping[str, Any]) -> int:
        ttl_s = request.get("ttl_s")
        if not isinstance(ttl_s, int | float) or not 0 <= ttl_s <= MAX_TTL_S:
            raise InvalidRequest(f"ttl_s = {str(ttl_s)[:40]!r}: seconds, 0 to {MAX_TTL_S:g}")
        return self._node.want(client.name, _ref(request), _whole(request, "count", 0, MAX_REPLICAS), float(ttl_s))


class _Client:
    """One connection's sending half."""

    def __init__(self, name: str, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self.cut = False
        self._writer = writer

    def send(self, line: bytes) -> None:
        transport = self._writer.transport
        if transport.is_closing():
            return
        if len(line) > MAX_LINE or transport.get_write_buffer_size() > UNREAD_BYTES:
            log.warning("client_cut client=%s unread_bytes=%d line_bytes=%d", self.name, transport.get_write_buffer_size(), len(line))
            self.cut = True
            transport.abort()
            return
        self._writer.write(line)


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _request(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except ValueError as error:
        raise InvalidRequest(f"a line that is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise InvalidRequest("a line that is not a JSON object")
    return request


def _name(request: Mapping[str, Any]) -> str | None:
    name = request.get("name")
    return None if name is None else function_name(str(name))


def _version(request: Mapping[str, Any]) -> int | None:
    return None if request.get("version") is None else _whole(request, "version", 1, 2**63 - 1)


def _ref(request: Mapping[str, Any]) -> Ref:
    return Ref(function_name(str(request.get("name"))), _whole(request, "version", 1, 2**63 - 1))


def _whole(request: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = request.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidRequest(f"{key} = {str(value)[:40]!r}: a whole number from {least} to {most}")
    return value
