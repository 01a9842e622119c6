"""A bundle: the directory an author uploads. What may lie in it, and what was found there."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from functions.archives import CHUNK
from functions.calls import MAX_SOURCE, CallDecl
from functions.errors import BundleRefused
from functions.paths import SKIPPED, Limits, Tree
from functions.records import File

CONFIG = "config.pbtxt"
MANIFEST = "function.toml"
_NO_VERSION = ("warmup", "initial_state", "configs")
"""Folders that Triton gives another meaning, never a version."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """Everything that a publish check found out about a bundle: what a version record needs besides lock and number."""

    files: Mapping[str, File]
    config: Mapping[str, Any]
    """Normalised, completed from the model; its ``name`` is the function's."""
    manifest: Mapping[str, Any]
    """``Manifest.to_json()``."""
    author_dir: str
    """The bundle's own numeric directory (``"1"``), or "" where no file lies in one (an ensemble)."""
    calls: Mapping[str, CallDecl]
    environment: str
    """Hash of the resolved environment; "" is the platform's own."""
    warnings: tuple[str, ...]
    staging: Path = field(default_factory=Path)
    """Where the files lie on this machine: ``staging / path`` for each path of ``files``."""

    def to_json(self) -> dict[str, Any]:
        return {
            "files": {path: list(file) for path, file in self.files.items()},
            "config": dict(self.config),
            "manifest": dict(self.manifest),
            "author_dir": self.author_dir,
            "calls": {name: asdict(call) for name, call in self.calls.items()},
            "environment": self.environment,
            "warnings": list(self.warnings),
            "staging": str(self.staging),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Inspected:
        return cls(
            files={path: File(*entry) for path, entry in data["files"].items()},
            config=data["config"],
            manifest=data["manifest"],
            author_dir=data["author_dir"],
            calls={name: CallDecl(**call) for name, call in data["calls"].items()},
            environment=data["environment"],
            warnings=tuple(data["warnings"]),
            staging=Path(data["staging"]),
        )


def scan(root: Path, limits: Limits | None = None) -> dict[str, File]:
    """Every file below ``root`` by its path, without ``__pycache__``. Follows no link. Raises BundleRefused for links, devices and
    names that are not the same everywhere, TooLarge over a limit."""
    tree = Tree(limits or Limits())
    return dict(sorted(_walk(root, "", tree)))


def version_directory(files: Mapping[str, File], *, ensemble: bool, warnings: list[str]) -> str:
    """The one numeric directory of the bundle that has files; "" only for an ensemble. Raises BundleRefused for none or several."""
    found: list[str] = []
    for name in sorted({path.partition("/")[0] for path in files if "/" in path} - set(_NO_VERSION)):
        if re.fullmatch(r"0|[1-9][0-9]{0,18}", name) and int(name) < 2**63:
            found.append(name)
        elif re.fullmatch(r"0[0-9]+", name):
            warnings.append(f"{name}: not a version directory, because it begins with 0; Triton ignores it too")
        elif re.match(r"-?[0-9]", name):
            raise BundleRefused(f"the folder {name!r} is not a version", fix="call it 1, or by a name that does not begin with a number")
    if len(found) > 1:
        raise BundleRefused(
            f"the bundle has {len(found)} version directories: {', '.join(found[:8])}", fix="keep one and upload the others on their own"
        )
    if not found and not ensemble:
        raise BundleRefused("the bundle has no version directory with files in it", fix="put the model's file into a folder called 1")
    return found[0] if found else ""


def artifacts(files: Mapping[str, File], directory: str) -> set[str]:
    """The names at the top of one folder of the bundle, ``directory`` being its version directory."""
    return {path.removeprefix(f"{directory}/").partition("/")[0] for path in files if path.startswith(f"{directory}/")}


def sources(root: Path, files: Mapping[str, File]) -> dict[str, bytes]:
    """The bundle's Python files by path, as far as they are read for calls (one byte more than that of longer ones)."""
    found: dict[str, bytes] = {}
    for path in files:
        if path.endswith(".py"):
            with (root / path).open("rb") as file:
                found[path] = file.read(MAX_SOURCE + 1)
    return found


def _walk(folder: Path, prefix: str, tree: Tree) -> Iterator[tuple[str, File]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name != SKIPPED and tree.add_folder(path):
                    yield from _walk(Path(entry.path), f"{path}/", tree)
            elif entry.is_file(follow_symlinks=False):
                if tree.add_file(path):
                    yield path, _digest(entry.path, path, tree)
            else:
                raise BundleRefused(f"{path[:200]!a} is a link, a device or a socket", fix="put a plain file there")


def _digest(location: str, path: str, tree: Tree) -> File:
    descriptor = os.open(location, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BundleRefused(f"{path!r} is no longer a plain file", fix="upload it when nothing changes it")
        digest, size = hashlib.sha256(), 0
        while chunk := file.read(CHUNK):
            size += len(chunk)
            tree.add_bytes(len(chunk))
            digest.update(chunk)
    return File(digest.hexdigest(), size, bool(status.st_mode & 0o111))
