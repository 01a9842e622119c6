"""The routes over a real registry and a real roll-out, on nodes that are always ready; called in process, without a socket."""

# ruff: noqa: ARG002  (fakes keep the signatures of what they stand for)
from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from functions.archives import unpack
from functions.bundle import CONFIG, MANIFEST, Inspected, scan, version_directory
from functions.calls import declared_calls
from functions.config import checks, text
from functions.errors import StartFailed
from functions.manifest import parse
from functions.names import Ref
from functions.paths import Limits
from gateway.admit import Gate
from gateway.app import create
from gateway.parts import Parts
from registry.service import Registry
from registry.stores import open_store
from workers.fleet.rollout import Rollout

CONFIG_TEXT = (
    'backend: "python"\nmax_batch_size: 4\n'
    'input [{ name: "X", data_type: TYPE_FP32, dims: [2] }]\noutput [{ name: "Y", data_type: TYPE_STRING, dims: [1] }]\n'
)
MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


class ReadyNodes:
    """Nodes on which every version is ready, but those in ``broken``."""

    def __init__(self) -> None:
        self.connected = 1
        self.broken: set[Ref] = set()

    def ready(self, ref: Ref) -> int:
        return 0 if ref in self.broken else 1

    def failed(self, ref: Ref) -> bool:
        return ref in self.broken

    def failure(self, ref: Ref) -> StartFailed | None:
        return StartFailed("weights are missing") if ref in self.broken else None

    async def reset(self, ref: Ref) -> None: ...

    def want(self, ref: Ref, count: int, ttl_s: float, holder: str = "") -> None: ...

    async def wait_ready(self, ref: Ref, count: int, wait_s: float, least: int = 1) -> None:
        if failure := self.failure(ref):
            raise failure

    def replicas(self, name: str | None = None) -> list[Any]:
        return []

    async def statistics(self, name: str | None = None, version: int | None = None) -> list[dict[str, Any]]:
        return []

    async def logs(self, ref: Ref, lines: int) -> list[str]:
        return [f"{ref} says hello"][:lines]


class Interface:
    """The application and what is behind it."""

    def __init__(self, root: Path, token: str | None = None) -> None:
        (root / "staging").mkdir(parents=True)
        self.root = root
        self.nodes = ReadyNodes()
        self.registry = Registry(open_store(f"file://{root}/store"), lambda: 1_700_000_000.0)
        gate = Gate(self.registry.catalog, lambda: 0.0, token=token)
        rollout = Rollout(self.registry, self.nodes, _inspect, root / "staging")
        self.parts = Parts(gate, self.registry, self.nodes, rollout, root / "staging", 1 << 20)  # type: ignore[arg-type]
        transport = httpx.ASGITransport(create(self.parts), raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")

    async def upload(self, name: str, files: Mapping[str, str], **query: Any) -> httpx.Response:
        return await self.http.post(
            f"/v1/functions/{name}/versions", params=query, content=zipped(files), headers={"Content-Type": "application/zip"}
        )

    @property
    def left(self) -> list[str]:
        """What lies in the staging directory."""
        return sorted(path.name for path in (self.root / "staging").iterdir())


def bundle(marker: str = "", toml: str = "") -> dict[str, str]:
    files = {"config.pbtxt": CONFIG_TEXT, "1/model.py": MODEL + f"# {marker}\n"}
    return {**files, "function.toml": toml} if toml else files


def zipped(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return buffer.getvalue()


async def _inspect(source: Path, name: str, staging: Path) -> Inspected:
    """What the throw-away process does, without the process."""
    root = staging / "bundle"
    staging.mkdir()
    if source.is_dir():
        shutil.copytree(source, root)
    else:
        unpack(source, root, Limits())
    files, warnings = scan(root), list[str]()
    config = checks.normalise(text.parse((root / CONFIG).read_text()), name, warnings)
    manifest = parse((root / MANIFEST).read_text() if MANIFEST in files else "").to_json()
    calls, notes = declared_calls(config, manifest, {path: (root / path).read_text() for path in files if path.endswith(".py")})
    directory = version_directory(files, ensemble=False, warnings=warnings)
    return Inspected(files, config, manifest, directory, calls, "", (*warnings, *notes), root)
