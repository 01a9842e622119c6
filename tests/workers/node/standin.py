"""A replica in a few lines, for tests of what starts, watches and ends replicas. Its config says how it behaves."""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from workers.process.page import Page
from workers.process.spec import ReplicaSpec


def run(spec: ReplicaSpec, listener: socket.socket, status_fd: int) -> None:
    """Says its states, counts one request a second connection, and then does what ``config["behave"]`` says."""
    behave = spec.root.config.get("behave", "serve")

    def say(**line: object) -> None:
        os.write(status_fd, json.dumps(line).encode() + b"\n")

    def drain(_number: int, _frame: FrameType | None) -> None:
        print("draining", flush=True)
        sys.exit(0)

    page = Page(spec.page)
    success = page.series("nv_inference_request_success", {"model": spec.root.name, "version": str(spec.root.version)})
    signal.signal(signal.SIGTERM, signal.SIG_IGN if behave == "ignore-sigterm" else drain)
    print("loading", spec.id)
    say(state="loading")
    say(phase="imported", seconds=0.001)
    if behave == "exit-in-load":
        sys.exit(7)
    if behave == "refuse-load":
        print("Traceback: the author's own words")
        say(state="failed", wire=302, message="initialize raised ValueError: no")
        sys.exit(1)
    if behave == "hang-in-load":
        time.sleep(600)
    if behave == "nonsense":
        os.write(status_fd, b'not json\n[1]\n{"state":"flying"}\n{"state":"ready","credit":1}\n' + b"x" * 300_000 + b"\n")
    if behave == "daemons":
        daemonise()
    say(phase="loaded", seconds=0.002)
    say(state="warming")
    say(phase="warmed", seconds=0.003)
    say(state="ready", credit=4)
    if behave == "report":
        report()
    while True:
        connection, _ = listener.accept()
        page.values[success] += 1
        page.start(0, [1 << 48 | 7, 1 << 48 | 8], time.monotonic_ns())
        if behave == "hang-in-c":
            # A PyDLL call keeps the GIL: no Python thread runs until it returns, no signal handler either.
            ctypes.PyDLL(None).sleep(600)
        connection.recv(1)
        page.finish(0)
        connection.close()


def daemonise() -> None:
    """Leave behind what an author's bundle may: an exec'd daemon in a session of its own, and a forked one without an exec."""
    subprocess.Popen(["sleep", "600"], start_new_session=True, env={"PATH": os.environ["PATH"]})
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.waitpid(middle, 0)


def report() -> None:
    """Print what this process is, as one JSON line."""
    facts = {
        "threads": threading.active_count(),
        "tasks": len(os.listdir("/proc/self/task")),
        "session": os.getsid(0),
        "pid": os.getpid(),
        "environment": dict(os.environ),
        "descriptors": sorted(_target(name) for name in os.listdir("/proc/self/fd")),
        "modules": sorted(sys.modules),
        "directory": os.getcwd(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "random": random.random(),
        "numpy": float(sys.modules["numpy"].random.random()),
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGCHLD)],
        "oom": Path("/proc/self/oom_score_adj").read_text().strip(),
    }
    print("FACTS " + json.dumps(facts), flush=True)


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").partition(":")[0]
    except OSError:  # the listing's own
        return "/proc"
