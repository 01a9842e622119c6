"""The process replicas are forked from: numpy, the replica runtime and some libraries imported once, exactly one thread.

``python -m workers.node.zygote '<json>'`` is exec'd fresh, so nothing of the node (its loop, uvicorn, its store client) is in
it. Over its control socket come orders (``birth``); back go JSON messages:

    {"ready": {"dropped": {module: why}, "seconds": …}}   the imports are done
    {"forked": id, "pid": n} + a pidfd                     the order was carried out
    {"exited": id, "pid": n, "status": wait status}        a replica ended, its process group was killed, it was reaped

A library that starts a thread when it is imported cannot be kept: a forked child has only the thread that called fork, and
would wait for the others' locks for ever. The zygote then execs itself again without that library. When the control socket
closes, the zygote ends; its replicas are the guard's affair.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from workers.node import birth as births
from workers.node import census
from workers.node.birth import MARK, MARK_BYTES, Birth
from workers.process.spec import ReplicaSpec

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line of a zygote says."""

    control: int
    """The descriptor of its control socket."""
    runtime: str = "workers.process.main:run"
    """``module:function`` that a child becomes: called with (ReplicaSpec, listener, status descriptor), does not return."""
    preload: tuple[str, ...] = ()
    """Modules to import before the first fork."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Modules that an earlier exec of this zygote could not keep, and why."""


@dataclass(frozen=True, slots=True)
class Newborn:
    """A forked child, before it has become its replica."""

    birth: Birth
    listener: int
    status: int
    log: int


def threads() -> int:
    """How many threads this process has, those of native libraries included."""
    return len(os.listdir("/proc/self/task"))


def preload(order: Order) -> dict[str, str]:
    """Import the runtime, then what is to be preloaded. Returns the modules that failed to import, and why.

    Does not return when one started a thread: execs this zygote again without it.
    """
    importlib.import_module(order.runtime.partition(":")[0])
    dropped = dict(order.dropped)
    for module in order.preload:
        if module in dropped:
            continue
        try:
            importlib.import_module(module)
        except Exception as error:  # an optional library: whatever it raises, replicas can still import it themselves
            dropped[module] = f"{type(error).__name__}: {error}"
        if threads() != 1:
            dropped[module] = f"it starts {threads() - 1} thread(s) when it is imported"
            _exec_again(order, dropped)
    return dropped


def _exec_again(order: Order, dropped: dict[str, str]) -> None:
    arguments = {"control": order.control, "runtime": order.runtime, "preload": order.preload, "dropped": dropped}
    os.set_inheritable(order.control, True)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "workers.node.zygote", json.dumps(arguments)])


class Zygote:
    """The loop: orders in, children out, deaths reported. Only the main thread, which is the only one, runs it."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, str] = {}
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        signal.signal(signal.SIGCHLD, _note)
        signal.set_wakeup_fd(self._wake_in.fileno(), warn_on_full_buffer=False)

    def report(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))

    def serve(self) -> Newborn | None:
        """Carry out orders. Returns a Newborn in each child, None in the zygote when the node has gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_out, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake_out.fileno():
                    self._wake_out.recv(4096)
                    self._bury()
                    continue
                order = births.receive(self._control)
                if order is None:
                    return None
                newborn = self._fork(*order)
                if newborn is not None:
                    return newborn

    def _fork(self, birth: Birth, listener: int, status: int, log: int) -> Newborn | None:
        if threads() != 1:
            raise RuntimeError(f"a zygote with {threads()} threads must not fork")
        pid = os.fork()
        if pid == 0:
            os.setsid()
            self._forget()
            return Newborn(birth, listener, status, log)
        self._children[pid] = birth.id
        for descriptor in (listener, status, log):
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        try:
            self.report({"forked": birth.id, "pid": pid}, (pidfd,))
        finally:
            os.close(pidfd)
        return None

    def _bury(self) -> None:
        # A dead leader's number cannot be given to anyone else before it is reaped: only until then is its group surely its own.
        while (ended := _ended()) is not None:
            replica = self._children.pop(ended.si_pid, None)
            if replica is not None:
                _kill_group(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            if replica is not None:
                self.report({"exited": replica, "pid": ended.si_pid, "status": status})
        # Each replica adopts the orphans of its own processes while it lives; what comes here belonged to one that died.
        for entry in census.table():
            if entry.parent == os.getpid() and entry.pid not in self._children and entry.state != "Z":
                os.kill(entry.pid, signal.SIGKILL)

    def _forget(self) -> None:
        signal.set_wakeup_fd(-1)
        for own in (self._control, self._wake_in, self._wake_out):
            own.close()


def become(newborn: Newborn, runtime: str) -> None:
    """Turn a forked child into its replica: nothing of the zygote is left but the imported modules."""
    birth = newborn.birth
    _adopt_orphans()
    _stamp(birth.id)
    _reset_signals()
    _keep_only(newborn)
    os.environ.clear()
    os.environ.update(birth.environment)
    os.umask(0o077)
    os.chdir(birth.directory)
    _limit(birth)
    random.seed()
    np.random.seed()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what an author printed before a crash must be in the log
    module, _, function = runtime.partition(":")
    run = getattr(importlib.import_module(module), function)
    run(ReplicaSpec.from_json(birth.spec), socket.socket(fileno=newborn.listener), newborn.status)


def _adopt_orphans() -> None:
    # Whatever loses its parent below this process becomes its child, not a child of the machine's first process: however
    # often an author's daemon forks, it stays a descendant of its replica, and after that of the zygote. Not inherited by fork.
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _stamp(replica: str) -> None:
    # /proc/self/environ shows the bytes the process was exec'd with, not os.environ: write over the room kept there, so that
    # everything this replica forks shows whose it is, even without an exec.
    ctypes.memmove(_mark_address, births.stamp(replica).encode(), MARK_BYTES)
    _libc.prctl(_PR_SET_NAME, replica.encode()[:15], 0, 0, 0)


def _reset_signals() -> None:
    # SIGPIPE and SIGXFSZ stay ignored, as in any Python process: they arrive as exceptions.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is not None:  # None: a handler that is not Python's, such as libc's own
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep_only(newborn: Newborn) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(newborn.log, 1)
    os.dup2(newborn.log, 2)
    keep = {0, 1, 2, newborn.listener, newborn.status}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            _close(int(name))


def _limit(birth: Birth) -> None:
    for name, value in birth.limits.items():
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    with open("/proc/self/oom_score_adj", "w") as file:  # when memory runs out a replica dies, not the gateway
        file.write("500")


def _note(_number: int, _frame: FrameType | None) -> None:
    """SIGCHLD only wakes the loop, through the wake-up descriptor."""


def _ended() -> Any:
    """A child that has ended and is not yet reaped, if any."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # the directory listing's own descriptor is closed already
        os.close(descriptor)


def main() -> None:
    started = time.monotonic()
    if len(os.environ.get(MARK, "")) != MARK_BYTES:
        raise SystemExit(f"a zygote's environment must keep {MARK_BYTES} bytes in {MARK}")
    arguments = json.loads(sys.argv[1])
    order = Order(**{**arguments, "preload": tuple(arguments["preload"])})
    os.set_inheritable(order.control, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _adopt_orphans()
    dropped = preload(order)
    zygote = Zygote(socket.socket(fileno=order.control))
    gc.collect()
    gc.freeze()  # a collection in a child would otherwise write to, and so copy, every page the children share
    zygote.report({"ready": {"dropped": dropped, "seconds": round(time.monotonic() - started, 4)}})
    newborn = zygote.serve()
    if newborn is not None:
        become(newborn, order.runtime)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.getenv.restype = ctypes.c_void_p
_mark_address = _libc.getenv(MARK.encode())

if __name__ == "__main__":
    main()
