"""The throw-away process that reads a bundle anybody may have sent: ``python -m workers.node.inspector '<json>'``.

Archives, protobuf text, ONNX files and Python are parsed here, and an author's ``auto_complete_config`` runs here, under limits of
memory, processor time, file size and open files. What was found goes as one JSON line over a pipe; the process then waits to be
killed with everything it started, so that nothing an author's code started can be overlooked.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from functions import archives, bundle, graph, manifest
from functions.bundle import Inspected
from functions.calls import declared_calls
from functions.config import backend, checks, text
from functions.config.spec import ModelConfig
from functions.errors import BundleRefused, DespinaError
from functions.paths import Limits
from functions.records import File
from workers.backends import BACKENDS

_PR_SET_CHILD_SUBREAPER = 36
_TEXT_BYTES = 4 << 20
"""Longest config.pbtxt or function.toml that is read."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What one inspection may use."""

    memory_bytes: int = 8 << 30
    """Address space: what libraries map counts too, about 1 GiB."""
    cpu_s: int = 120
    """Seconds of processor time, all threads together."""
    open_files: int = 256
    deadline_s: float = 180.0
    """Seconds on the clock, until the whole process group is killed."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the command line says."""

    source: Path
    """A directory, or an archive."""
    name: str
    """The function's name."""
    destination: Path
    """Where the bundle goes: a new directory."""
    answer: int
    """Descriptor of the pipe for the result."""
    limits: Limits
    sandbox: Sandbox

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "source": str(self.source), "destination": str(self.destination)})

    @classmethod
    def from_json(cls, data: str) -> Task:
        fields = json.loads(data)
        return cls(
            source=Path(fields["source"]),
            name=fields["name"],
            destination=Path(fields["destination"]),
            answer=fields["answer"],
            limits=Limits(**fields["limits"]),
            sandbox=Sandbox(**fields["sandbox"]),
        )


def look(task: Task) -> Inspected:
    """Everything there is to know about the bundle. Raises BundleRefused with field and fix, or TooLarge."""
    root = _taken(task)
    files = bundle.scan(root, task.limits)
    warnings: list[str] = []
    checked = manifest.parse(_text(root, files, bundle.MANIFEST)).to_json()
    written = text.parse(_text(root, files, bundle.CONFIG))
    ensemble = written.get("platform") == "ensemble" or "ensemble_scheduling" in written
    author_dir = bundle.version_directory(files, ensemble=ensemble, warnings=warnings)
    written |= backend.choose(written, bundle.artifacts(files, author_dir), task.name)
    sources = bundle.sources(root, files)  # before any code of its author runs
    config = _complete(written, root, files, author_dir, task.name, warnings)
    calls, notes = declared_calls(config, checked, sources)
    return Inspected(files, config, checked, author_dir, calls, "", tuple(dict.fromkeys([*warnings, *notes])), root)


def _taken(task: Task) -> Path:
    """The bundle's root: a directory is copied, an archive unpacked."""
    if not task.source.is_dir():
        task.destination.mkdir()
        return archives.unpack(task.source, task.destination, task.limits)
    for path, file in bundle.scan(task.source, task.limits).items():
        place = task.destination / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(task.source / path, place, follow_symlinks=False)
        place.chmod(0o755 if file.executable else 0o644)
    task.destination.mkdir(exist_ok=True)
    return task.destination


def _complete(
    written: Mapping[str, Any], root: Path, files: Mapping[str, File], author_dir: str, name: str, warnings: list[str]
) -> dict[str, Any]:
    """The normalised configuration, completed from the model by its backend."""
    config = checks.prepare(written, name, directory=root.name)
    if config["platform"] != "ensemble":
        # Completed before it is checked: warm-up samples and batch sizes may speak of inputs that only the model names.
        checks.check_artifact(config, files, author_dir)
        config = _backend(config["backend"]).inspect(config, str(root / author_dir))
    config = checks.normalise(config, name, warnings, directory=root.name)
    checks.check_files(config, files, author_dir)
    if config["platform"] == "ensemble":
        graph.check_steps(ModelConfig.of(config))
    return config


def _backend(name: str) -> Any:
    """The module of a backend. Raises BundleRefused when its library is not installed."""
    entry = BACKENDS[name]
    if entry.library and importlib.util.find_spec(entry.library) is None:
        raise BundleRefused(
            f"the backend {name!r} is not installed here",
            field="config.pbtxt: backend",
            fix=f"have the operator install despina[{entry.extra}]",
        )
    return importlib.import_module(entry.module)


def _text(root: Path, files: Mapping[str, File], path: str) -> str:
    """A text file of the bundle; "" where there is none."""
    if path not in files:
        return ""
    if files[path].size > _TEXT_BYTES:
        raise BundleRefused(f"{files[path].size} bytes; the limit is {_TEXT_BYTES}", field=path)
    try:
        return (root / path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise BundleRefused(f"not UTF-8: {error}", field=path, fix="save it as UTF-8") from None


def answer(task: Task) -> dict[str, Any]:
    """What goes over the pipe: ``{"inspected": …}`` or ``{"refused": {wire, message, reason, field, fix}}``."""
    try:
        return {"inspected": look(task).to_json()}
    except DespinaError as error:
        refusal = error
    except MemoryError:
        refusal = BundleRefused(f"inspecting it takes more than {task.sandbox.memory_bytes >> 20} MiB of memory, which is the limit")
    except RecursionError:
        refusal = BundleRefused("something in it is nested too deep to be read")
    except OSError as error:
        refusal = _of_system(error, task)
    except Exception as error:  # whatever a parser makes of hostile bytes: the bundle cannot be taken, and our log says where it broke
        traceback.print_exc()
        refusal = BundleRefused(f"it could not be read: {type(error).__name__}: {error}"[:500])
    parts = {part: getattr(refusal, part, "") for part in ("reason", "field", "fix")}
    return {"refused": {"wire": refusal.wire, "message": refusal.message, **parts}}


def _of_system(error: OSError, task: Task) -> BundleRefused:
    if error.errno == errno.EFBIG:
        return BundleRefused(f"a file in it grows over {task.limits.total_bytes} bytes, which is the limit")
    if error.errno == errno.EMFILE:
        return BundleRefused(f"inspecting it opens more than {task.sandbox.open_files} files at once, which is the limit")
    if error.errno == errno.ENOMEM:
        return BundleRefused(f"inspecting it takes more than {task.sandbox.memory_bytes >> 20} MiB of memory, which is the limit")
    traceback.print_exc()
    return BundleRefused(f"it could not be read: {error.strerror or error}")


def confine(task: Task) -> None:
    """Set the limits of this process, for good."""
    box = task.sandbox
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_AS, box.memory_bytes)
    _set(resource.RLIMIT_CPU, box.cpu_s, after=5)  # SIGXCPU first, which says why; SIGKILL if author's code handles it
    _set(resource.RLIMIT_FSIZE, task.limits.total_bytes)
    _set(resource.RLIMIT_NOFILE, box.open_files)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _set(kind: int, value: int, after: int = 0) -> None:
    _, hard = resource.getrlimit(kind)
    most = value + after if hard == resource.RLIM_INFINITY else min(value + after, hard)
    resource.setrlimit(kind, (min(value, most), most))


def main() -> None:
    task = Task.from_json(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    confine(task)
    data = memoryview(json.dumps(answer(task), separators=(",", ":")).encode() + b"\n")
    while data:
        data = data[os.write(task.answer, data) :]
    with contextlib.suppress(OSError):
        os.read(0, 1)  # until killed, or the parent is gone
    os._exit(0)


if __name__ == "__main__":
    main()
