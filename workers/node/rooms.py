"""Where the replicas of one node live: sockets, working directories, and the environment and limits they are born with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from functions.errors import InvalidRequest
from workers.node.replica import Place

KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""All that passes from the node's environment into a zygote's and a replica's."""
QUIET = {
    # A numeric library's own thread pool would start at import: no thread may run before a fork, and lanes share the cores anyway.
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # ONNX Runtime 1.32 otherwise starts a telemetry thread when it is imported.
    "ORT_DISABLE_TELEMETRY": "1",
    "PYTHONUNBUFFERED": "1",
}
LIMITS = {"core": 0, "nofile": 65_536}
_SOCKET_BYTES = 107


class Rooms:
    """``run`` is the node's own run directory; what an earlier node left in ``run/r`` and ``run/work`` is removed."""

    def __init__(self, run: Path, instance: Mapping[str, str], start_s: float, environment: Mapping[str, str] = os.environ) -> None:
        self._sockets = run / "r"
        self._work = run / "work"
        self._start_s = start_s
        self.environment = {key: environment[key] for key in KEPT if key in environment} | QUIET | dict(instance)
        for directory in (self._sockets, self._work):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(mode=0o700, parents=True)
        longest = len(os.fsencode(self._socket(10**9)))
        if longest > _SOCKET_BYTES:
            raise InvalidRequest(f"run directory {run} is {longest - _SOCKET_BYTES} bytes too long for the names of unix sockets in it")

    def place(self, replica: str, epoch: int, page: str) -> Place:
        """What one replica is born with."""
        return Place(page, self._socket(epoch), self.work(replica), self.environment, LIMITS, self._start_s)

    def work(self, replica: str) -> Path:
        """A replica's working directory."""
        return self._work / replica

    def _socket(self, epoch: int) -> Path:
        return self._sockets / str(epoch)
