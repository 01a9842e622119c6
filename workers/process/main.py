"""A replica from its first moment to its last: the one file of this process that knows everybody.

    loading → (imported) → (loaded) → warming → (warmed) → ready → draining → exit 0
    failed → exit 1, from any of the first, with the error on the status pipe and the author's trace on standard error

The node forks (or starts) the process, makes it a session leader, limits it, and calls :func:`run`.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import sys
from contextlib import suppress
from typing import NoReturn

import numpy as np

from functions.config.spec import ModelConfig
from functions.errors import DespinaError
from functions.protocol.classification import read_labels
from functions.protocol.v2 import Codec
from workers.process.closure import Closure
from workers.process.door import Door
from workers.process.layout import credit
from workers.process.log import log, our_fault
from workers.process.loop import Loop
from workers.process.outcalls import Outcalls
from workers.process.page import Page
from workers.process.scheduler import Scheduler
from workers.process.spec import ReplicaSpec
from workers.process.status import Status


def run(spec: ReplicaSpec, listener: socket.socket, status_fd: int) -> NoReturn:
    """Load ``spec``'s closure, serve it to the routers that dial ``listener``, and end the process: exit code 0 after a drain, 1
    when it could not start. ``status_fd`` is written to as :mod:`workers.process.status` says."""
    status = Status(status_fd)
    code = 1
    try:
        _serve(spec, listener, status)
        code = 0
    except DespinaError as error:
        status.failed(error)
        log("failed", replica=spec.id, code=error.code, message=error.message)
    except BaseException as error:
        status.failed(our_fault(f"replica {spec.id}", error))
    finally:
        # Not sys.exit: the process may be the fork of a zygote, whose own stack and exit handlers are not ours to run.
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _serve(spec: ReplicaSpec, listener: socket.socket, status: Status) -> None:
    status.state("loading")
    reseed()
    page = Page(spec.page)
    outcalls = Outcalls()
    closure = Closure(spec, page, outcalls)
    with status.phase("imported"):
        closure.libraries()
    with status.phase("loaded"):
        closure.load()
    status.state("warming")
    with status.phase("warmed"):
        closure.warm_up()
    config = ModelConfig.of(spec.root.config)
    total = credit(config, spec.root.threads)
    door = Door(
        listener,
        token=bytes.fromhex(spec.token),
        digest=bytes.fromhex(spec.root.digest.removeprefix("sha256:")),
        epoch=spec.epoch,
        credit=total,
        timeout_s=spec.timeout_s,
        body_bytes=spec.body_bytes,
        on_result=outcalls.on_result,
        on_failure=outcalls.on_failure,
    )
    outcalls.door = door
    codec = Codec(config, spec.root.version, read_labels(config, spec.root.model_dir), spec.body_bytes)
    root = closure.root
    scheduler = Scheduler(
        root,
        codec,
        root.counters,
        door,
        page,
        spec.root.threads,
        batching=config.max_batch_size > 0,
        in_order=config.dynamic_batching is not None and config.dynamic_batching.preserve_ordering,
    )
    loop = Loop(door, scheduler)
    loop.obey_signals()
    # What was loaded stays: a collection that walks through it again and again would only delay calls.
    gc.collect()
    gc.freeze()
    status.ready(total)
    log("ready", replica=spec.id, credit=total, pid=os.getpid())
    loop.run()
    log("draining", replica=spec.id)
    scheduler.close()
    closure.close()
    door.close()


def reseed() -> None:
    """Give this process random numbers of its own: a fork begins with its parent's."""
    random.seed()
    np.random.seed()
