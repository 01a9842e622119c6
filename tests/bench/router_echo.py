"""Calls a second through the router and one link, against a replica that only echoes. Run: python -m tests.bench.router_echo

The replica is another process, a blocking socket loop with as little Python as frames allow: the figures are the cost of router + link +
socket, on one core of this process. 200-byte bodies.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable

import uvloop

from functions.names import Ref
from functions.protocol import frames
from workers.fleet.call import Call
from workers.fleet.events import Event
from workers.fleet.router import Router
from workers.fleet.terms import Terms
from workers.node.messages import ReplicaEvent, State

F = Ref("echo", 1)
BODY = b"x" * 200
SECONDS = 2.0


def echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.recv(65536)
    connection.sendall(frames.ready(1024, 1, 1))
    size = 16 + frames.CALL_HEAD.size + len(BODY)
    head = struct.Struct("<BBHIQI")
    rest = b""
    while data := connection.recv(1 << 20):
        data = rest + data
        whole = len(data) // size * size
        rest = data[whole:]
        out = []
        for at in range(0, whole, size):
            (id,) = struct.unpack_from("<Q", data, at + 8)
            out.append(head.pack(1, 4, 0, 4 + len(BODY), id, frames.NO_HEADER))
            out.append(BODY)
        connection.sendall(b"".join(out))


class OneNode:
    connected = 1

    def __init__(self, event: ReplicaEvent) -> None:
        self._event = event

    def want(self, *_lease: object) -> None:
        pass

    def subscribe(self, on_event: Callable[[Event], None]) -> Callable[[], None]:
        asyncio.get_running_loop().call_soon(on_event, self._event)
        return lambda: None


class Load:
    """So many calls at a time, each followed by the next, until told to stop."""

    def __init__(self, router: Router, depth: int) -> None:
        self._router = router
        self._time = asyncio.get_running_loop().time
        self._open = depth
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.count = 0
        self.stopping = False
        for _ in range(depth):
            self._call()

    def _call(self) -> None:
        self._router.submit(Call(F, BODY, deadline=self._time() + 300.0, on_reply=self._replied, on_failure=self._failed))

    def _replied(self, _call: Call, _header_length: int, _body: memoryview, _flags: int) -> None:
        self.count += 1
        if not self.stopping:
            self._call()
            return
        self._open -= 1
        if not self._open:
            self.ended.set_result(None)

    def _failed(self, _call: Call, error: Exception) -> None:
        raise SystemExit(f"failed: {error}")


async def measure(event: ReplicaEvent, depths: list[int]) -> None:
    router = Router(OneNode(event), lambda _ref: Terms(), lambda _caller, name: Ref(name, 1))
    while not router.pool(F).links:
        await asyncio.sleep(0.01)
    for depth in depths:
        began, used = time.perf_counter(), time.process_time()
        load = Load(router, depth)
        await asyncio.sleep(SECONDS)
        load.stopping = True
        await load.ended
        wall, cpu = time.perf_counter() - began, time.process_time() - used
        each_us, cpu_us = 1e6 * wall * depth / load.count, 1e6 * cpu / load.count
        print(f"depth {depth:3d}: {load.count / wall:9.0f} calls/s, {each_us:7.1f} us a call, {cpu_us:6.2f} us of CPU here")
    await router.close(0.0)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/echo.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        child = os.fork()
        if not child:
            echo(listener)
            os._exit(0)
        event = ReplicaEvent("echo", F.name, F.version, "sha256:" + "00" * 32, State.READY, f"unix:{path}", "00" * 32, 1)
        uvloop.run(measure(event, [1, 8, 32, 128]))
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
