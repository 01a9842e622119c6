"""A real uvicorn with the express lane on uvloop in a thread, before a fake router; and a raw socket to speak to it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from fastapi import FastAPI, Request

from functions.errors import NotFound, from_wire
from functions.protocol.frames import NO_HEADER, Flag
from functions.records import TagRecord, Target, VersionRecord
from gateway.admit import Gate
from gateway.express import Express
from gateway.lane import Lane
from gateway.settings import HttpLimits
from workers.fleet.call import Call

DIGEST = "sha256:" + "ab" * 32
WAIT_S = 10.0


class FakeVersions:
    """Functions by name; each has versions 1, 2 and 3, ``live`` at 2 and ``canary`` at 1. Version 3 takes no body at all; version 7
    exists but has not been read yet."""

    def __init__(self, names: Mapping[str, Mapping[str, Any]]) -> None:
        self.names = names
        self.live = 2
        self.read_versions = {1, 2, 3}
        self.may_read = threading.Event()
        self.may_read.set()

    def resolve(self, name: str, selector: str | None = None) -> TagRecord | int:
        if name not in self.names:
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        if selector in ("1", "2", "3", "7"):
            return int(selector)
        version = {None: self.live, "live": self.live, "canary": 1}.get(selector)
        if version is None:
            raise NotFound(f"Request for unknown model: '{name}' version {selector} is not found")
        return TagRecord(name, selector or "live", 1, (Target(version),), "", "", "")

    def peek(self, name: str, version: int) -> VersionRecord | None:
        return self._record(name, version) if version in self.read_versions else None

    def record(self, name: str, version: int) -> VersionRecord:
        assert self.may_read.wait(WAIT_S)
        self.read_versions.add(version)
        return self._record(name, version)

    def _record(self, name: str, version: int) -> VersionRecord:
        limits = {"timeout_s": 300, "body_mb": 0 if version == 3 else 1, **self.names[name]}
        return VersionRecord(name, version, DIGEST, DIGEST, {}, {}, {"limits": limits}, "1")


class FakeRouter:
    """Answers by the function's name: ``echo`` gives the body back, ``hold`` keeps calls until ``let``, ``fail`` fails with the error
    number in the body, ``large`` answers that many bytes. ``late-echo`` and ``late-fail`` answer only when the loop comes round, as a
    real router does: until then the request stands in its connection's line."""

    def __init__(self) -> None:
        self.held: list[Call] = []
        self.calls: list[Call] = []
        self.cancelled: list[Call] = []
        self.changed = threading.Condition()

    def submit(self, call: Call) -> None:
        with self.changed:
            self.calls.append(call)
            del self.calls[:-100]
            self.changed.notify_all()
        if call.ref.name.startswith("late-"):
            asyncio.get_running_loop().call_soon(self._answer, call, call.ref.name.removeprefix("late-"))
        else:
            self._answer(call, call.ref.name)

    def _answer(self, call: Call, name: str) -> None:
        if name == "echo":
            binary = call.header_length != NO_HEADER
            call.on_reply(call, call.header_length, memoryview(call.body), int(Flag.BINARY) if binary else 0)
        elif name == "fail":
            call.on_failure(call, from_wire(int(bytes(call.body)), "so it goes"))
        elif name == "large":
            call.on_reply(call, NO_HEADER, memoryview(bytes(int(bytes(call.body)))), 0)
        else:
            with self.changed:
                self.held.append(call)
                self.changed.notify_all()

    def cancel(self, call: Call) -> None:
        with self.changed:
            self.cancelled.append(call)
            self.changed.notify_all()

    def wait(self, true: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(true, WAIT_S)


class Served:
    """The running server, seen from the test's thread."""

    def __init__(
        self, port: int, loop: asyncio.AbstractEventLoop, server: uvicorn.Server, lane: Lane, router: FakeRouter, versions: FakeVersions
    ):
        self.port, self.loop, self.server, self.lane, self.router, self.versions = port, loop, server, lane, router, versions
        self.app_gate = threading.Event()
        self.bodies: list[int] = []

    def let(self, call: Call, body: bytes = b"{}") -> None:
        """Answer a held call, on the loop."""
        self.on_loop(lambda: call.on_reply(call, NO_HEADER, memoryview(body), 0))

    def on_loop(self, what: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()
        self.loop.call_soon_threadsafe(lambda: done.set_result(what()))
        return done.result(WAIT_S)

    def connect(self) -> Wire:
        return Wire(socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S))

    def connect_tls(self, authority: Path) -> Wire:
        context = ssl.create_default_context(cafile=str(authority))
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)
        return Wire(context.wrap_socket(plain, server_hostname="localhost"))

    def post(self, name: str, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
        with self.connect() as wire:
            wire.send(request(f"/v2/models/{name}/infer", body, headers))
            return wire.answer()


class Wire:
    """A raw client socket that reads one answer at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def line_head(self) -> bytes:
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return head

    def answer(self, *, bare: bool = False) -> tuple[int, dict[str, str], bytes]:
        """Status, headers by lower-case name, body."""
        status_line, *lines = self.line_head().decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = 0 if bare else int(headers.get("content-length", "0"))
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(status_line.split()[1]), headers, body

    def ended(self) -> bool:
        """Whether the server has closed, with nothing more to read."""
        try:
            return not self.buffer and self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def _more(self) -> None:
        data = self.sock.recv(1 << 20)
        if not data:
            raise EOFError(f"closed after {self.buffer[:200]!r}")
        self.buffer += data


def request(path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, method: str = "POST") -> bytes:
    lines = {"Host": "localhost", "Content-Length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def error_of(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str]:
    """Status and ``Despina-Error``; the body must be ``{"error": …}``."""
    status, headers, body = answer
    assert list(json.loads(body)) == ["error"]
    return status, headers["despina-error"]


def certificate(directory: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the test's certificate, is not installed")
    cert, key = directory / "cert.pem", directory / "key.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([openssl, *words.split(), "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


@contextmanager
def serving(limits: HttpLimits | None = None, cert: tuple[Path, Path] | None = None) -> Iterator[Served]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    started: Future[Served] = Future()
    thread = threading.Thread(target=_run, args=(listener, limits or HttpLimits(), cert, started), daemon=True)
    thread.start()
    served = started.result(WAIT_S)
    try:
        yield served
    finally:
        served.app_gate.set()
        served.versions.may_read.set()
        served.server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()


def _run(listener: socket.socket, limits: HttpLimits, cert: tuple[Path, Path] | None, started: Future[Served]) -> None:
    uvloop.run(_serve(listener, limits, cert, started))


async def _serve(listener: socket.socket, limits: HttpLimits, cert: tuple[Path, Path] | None, started: Future[Served]) -> None:
    loop = asyncio.get_running_loop()
    versions = FakeVersions({"echo": {}, "hold": {}, "fail": {}, "large": {}, "wide": {"body_mb": 1024}, "late-echo": {}, "late-fail": {}})
    router = FakeRouter()
    lane = Lane(Gate(versions, loop.time), router, limits)
    app = FastAPI()
    config = uvicorn.Config(
        app,
        http=partial(Express, lane=lane),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=5,
        ssl_certfile=str(cert[0]) if cert else None,
        ssl_keyfile=str(cert[1]) if cert else None,
    )
    server = uvicorn.Server(config)
    served = Served(listener.getsockname()[1], loop, server, lane, router, versions)
    _routes(app, served)
    asyncio.get_running_loop().create_task(_announce(server, served, started))
    await server._serve([listener])
    await server.shutdown([listener]) if not server.started else None


async def _announce(server: uvicorn.Server, served: Served, started: Future[Served]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not server.started and time.monotonic() < deadline:
        await asyncio.sleep(0.005)
    started.set_result(served)


def _routes(app: FastAPI, served: Served) -> None:
    @app.get("/hello")
    async def hello() -> dict[str, str]:
        return {"hello": "world"}

    @app.get("/slow")
    async def slow() -> dict[str, str]:
        while not served.app_gate.is_set():
            await asyncio.sleep(0.005)
        return {"slow": "done"}

    @app.post("/upload")
    async def upload(request: Request) -> dict[str, int]:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
        served.bodies.append(size)
        return {"size": size}

    @app.post("/unread")
    async def unread() -> dict[str, str]:
        return {"read": "nothing"}
