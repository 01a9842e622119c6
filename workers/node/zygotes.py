"""The node's side of its zygote: starts it, sends it orders, hears of births and deaths, starts another when it dies.

States of a zygote: starting → ready → dead; there is one at a time. Replicas live on when their zygote dies: each is watched
through its own pidfd, only its exit status is then unknown.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from functions.errors import DeadlineExceeded, InternalError
from workers.node import birth as births
from workers.node.backoff import Backoff
from workers.node.birth import MARK, MARK_BYTES, Birth
from workers.node.guard import Guard

log = logging.getLogger(__name__)

_MESSAGE = 64 * 1024
_READY_S = 60.0
"""How long a zygote may take to import its libraries before it is killed as hung."""


@dataclass(frozen=True, slots=True)
class Born:
    """A child that exists. Whoever receives it owns, and closes, the pidfd."""

    pid: int
    pidfd: int


class Zygotes:
    """Keeps one zygote ready. Lives on the node's loop.

    ``on_exit(replica id, wait status)`` is called for each replica whose zygote saw it end.
    """

    def __init__(
        self,
        guard: Guard,
        environment: Mapping[str, str],
        *,
        runtime: str,
        preload: tuple[str, ...],
        output: str,
        on_exit: Callable[[str, int], None],
    ) -> None:
        self._guard = guard
        self._environment = {**environment, **guard.environment, MARK: "_" * MARK_BYTES}
        self._runtime = runtime
        self._preload = preload
        self._output = output
        self._on_exit = on_exit
        self._zygote: _Zygote | None = None
        self._backoff = Backoff()
        self._restart: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def pid(self) -> int:
        """The living zygote's process, 0 while there is none."""
        return self._zygote.process.pid if self._zygote else 0

    @property
    def ready(self) -> bool:
        return self._zygote is not None and self._zygote.ready

    def start(self) -> None:
        """Start the zygote; it is ready some tenths of a second later."""
        self._restart = None
        self._zygote = _Zygote(self, self._spawn())
        self._guard.add(self.pid)

    async def fork(self, birth: Birth, listener: int, status: int, log: int, deadline: float) -> Born:
        """A child that becomes ``birth``'s replica. The descriptors stay the caller's to close.

        Raises DeadlineExceeded when at ``deadline`` (loop time) no zygote has carried the order out, InternalError when the
        zygote died over it.
        """
        try:
            async with asyncio.timeout_at(deadline):
                while self._zygote is None or not self._zygote.ready:
                    await self._changed.wait()
                return await self._zygote.fork(birth, listener, status, log)
        except TimeoutError:
            raise DeadlineExceeded(f"no zygote forked {birth.id} in time") from None

    async def close(self) -> None:
        """End the zygote; replicas must be gone before. A zygote that does not end at once is killed."""
        self._closed = True
        if self._restart is not None:
            self._restart.cancel()
        zygote = self._zygote
        if zygote is not None:
            zygote.close()
            await zygote.ended.wait()

    def _spawn(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        arguments = json.dumps({"control": theirs.fileno(), "runtime": self._runtime, "preload": self._preload})
        with open(self._output, "ab") as output, theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "workers.node.zygote", arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return process, ours

    def _is_ready(self, report: Mapping[str, Any]) -> None:
        for module, why in report["dropped"].items():
            log.warning("preload_dropped module=%s why=%r", module, why)
        log.info("zygote_ready pid=%d seconds=%s", self.pid, report["seconds"])
        self._backoff.succeeded()
        self._changed.set()

    def _died(self, zygote: _Zygote, status: int) -> None:
        self._guard.remove(zygote.process.pid)
        self._zygote = None
        self._changed.clear()
        if self._closed:
            return
        delay = self._backoff.failed()
        log.error("zygote_died pid=%d status=%d restart_in_s=%.2f output=%s", zygote.process.pid, status, delay, self._output)
        self._restart = asyncio.get_running_loop().call_later(delay, self.start)


class _Zygote:
    """One zygote process and the orders it has not answered yet."""

    def __init__(self, owner: Zygotes, spawned: tuple[subprocess.Popen[bytes], socket.socket]) -> None:
        self.process, self._control = spawned
        self.ready = False
        self.ended = asyncio.Event()
        self._owner = owner
        self._orders: dict[str, asyncio.Future[Born]] = {}
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(self.process.pid)
        self._loop.add_reader(self._control, self._hear)
        self._loop.add_reader(self._pidfd, self._end)
        self._overdue = self._loop.call_later(_READY_S, self.process.kill)

    async def fork(self, birth: Birth, listener: int, status: int, log: int) -> Born:
        order: asyncio.Future[Born] = self._loop.create_future()
        self._orders[birth.id] = order
        try:
            births.send(self._control, birth, listener, status, log)
            return await order
        except BlockingIOError:
            raise InternalError("the zygote reads no more orders") from None
        except OSError as error:
            raise InternalError(f"the zygote is gone: {error}") from None
        finally:
            self._orders.pop(birth.id, None)

    def close(self) -> None:
        """Closing the control socket ends a zygote; SIGKILL follows in case it hangs in an import."""
        self._loop.remove_reader(self._control)
        self._control.close()
        self._loop.call_later(1.0, self._kill)

    def _kill(self) -> None:
        if not self.ended.is_set():
            self.process.kill()

    def _hear(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._loop.remove_reader(self._control)  # it is dying: its pidfd tells when
            return
        message = json.loads(data)
        if "ready" in message:
            self.ready = True
            self._overdue.cancel()
            self._owner._is_ready(message["ready"])
        elif "forked" in message:
            self._deliver(message["forked"], Born(message["pid"], descriptors[0]))
        else:
            self._owner._on_exit(message["exited"], message["status"])

    def _deliver(self, replica: str, born: Born) -> None:
        order = self._orders.get(replica)
        if order is None or order.done():
            # Nobody waits for it any more: it must not live on unowned.
            signal.pidfd_send_signal(born.pidfd, signal.SIGKILL)
            os.close(born.pidfd)
        else:
            order.set_result(born)

    def _end(self) -> None:
        self._overdue.cancel()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._drain()
        status = self.process.wait()
        for order in self._orders.values():
            if not order.done():
                order.set_exception(InternalError(f"the zygote died (status {status}) before it forked"))
        self.ended.set()
        self._owner._died(self, status)

    def _drain(self) -> None:
        # What it had said before it died still counts: births whose pidfds lie in the socket, deaths with their status.
        if self._control.fileno() < 0:
            return
        while self._readable():
            self._hear()
        self._loop.remove_reader(self._control)
        self._control.close()

    def _readable(self) -> bool:
        try:
            return bool(self._control.recv(1, socket.MSG_PEEK))
        except OSError:
            return False
