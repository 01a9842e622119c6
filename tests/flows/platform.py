"""A real platform for the flows: ``despina up`` as a process tree of its own, spoken to over its public interface only."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.processes import descendants, free_port, mentioning

START_S = 60.0
"""How long ``despina up`` may take on a busy 2-core machine before a flow gives up."""


@dataclass
class Answer:
    """One HTTP answer, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def expect(self, *statuses: int) -> Answer:
        assert self.status in statuses, f"{self.status}: {self.body[:2000]!r}"
        return self


@dataclass
class Platform:
    """``despina up`` and its ports. ``request`` opens a connection per call; ``connection`` gives one to keep."""

    data: Path
    process: subprocess.Popen[str]
    http_port: int
    metrics_port: int
    log: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, data: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Platform:
        """Start and wait for the ready line. Raises AssertionError with what was printed when it does not come."""
        http_port, metrics_port = free_port(), free_port()
        errors = (data.parent / f"{data.name}.stderr").open("ab")
        process = subprocess.Popen(
            [despina(), "up", "--data", str(data), "--http-port", str(http_port), "--metrics-port", str(metrics_port), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        errors.close()
        platform = cls(data, process, http_port, metrics_port)
        line = platform._read_line(START_S)
        if not re.match(r"ready http=\S+ metrics=\S+", line):
            process.kill()
            raise AssertionError(f"no ready line but {line!r}; stderr: {platform.stderr()[-3000:]}")
        return platform

    def _read_line(self, timeout_s: float) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        return self.process.stdout.readline() if readable else ""

    def stderr(self) -> str:
        return (self.data.parent / f"{self.data.name}.stderr").read_text(errors="replace")

    def connection(self, timeout_s: float = 30.0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=timeout_s)

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, timeout_s: float = 120.0
    ) -> Answer:
        """One call. A dict or list body is sent as JSON."""
        sent = dict(headers or {})
        if isinstance(body, dict | list):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = self.connection(timeout_s)
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            return Answer(response.status, {key.lower(): value for key, value in response.getheaders()}, response.read())
        finally:
            connection.close()

    def upload(self, bundle: Path, name: str | None = None, **query: Any) -> Answer:
        """Upload a directory as a zip and wait for its promotion."""
        asked = "&".join(f"{key.rstrip('_')}={value}" for key, value in {"wait": 60, **query}.items())
        name = name or bundle.name
        return self.request("POST", f"/v1/functions/{name}/versions?{asked}", zipped(bundle), {"Content-Type": "application/zip"})

    def infer(self, name: str, inputs: Mapping[str, tuple[str, list[int], list[Any]]], **headers: str) -> Answer:
        """A KServe v2 JSON call: ``{"X": ("FP32", [1, 2], [1.0, 2.0])}``."""
        body = {
            "inputs": [{"name": key, "datatype": dtype, "shape": shape, "data": data} for key, (dtype, shape, data) in inputs.items()],
        }
        return self.request("POST", f"/v2/models/{name}/infer", body, headers)

    def metrics(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=30)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()

    def metric(self, family: str, **labels: str) -> float:
        """The sum of all series of a family that carry these labels; 0.0 when there is none."""
        total = 0.0
        for line in self.metrics().splitlines():
            found = re.fullmatch(rf"{re.escape(family)}(?:\{{(.*)\}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def replicas(self, name: str) -> list[dict[str, Any]]:
        found = self.request("GET", f"/v1/functions/{name}/replicas").expect(200).json
        return list(found["replicas"] if isinstance(found, dict) else found)

    def stop(self, timeout_s: float = 40.0) -> int:
        """SIGTERM, then the exit code. Raises TimeoutExpired after killing everything when it does not end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    def processes(self) -> set[int]:
        """``up``, what lives below it, and every process whose environment or arguments name this platform's data directory."""
        return descendants(self.process.pid) | mentioning(str(self.data))


@contextmanager
def running(data: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Platform]:
    """A platform for the length of a ``with``; it must stop cleanly."""
    platform = Platform.start(data, *arguments, env=env)
    try:
        yield platform
    finally:
        code = platform.stop()
    assert code == 0, f"exit code {code}; stderr: {platform.stderr()[-3000:]}"


def despina() -> str:
    """The installed command beside this interpreter."""
    beside = Path(sys.executable).with_name("despina")
    return str(beside) if beside.exists() else str(shutil.which("despina"))


def zipped(bundle: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(bundle.rglob("*")):
            archive.write(path, f"{bundle.name}/{path.relative_to(bundle)}")
    return buffer.getvalue()
