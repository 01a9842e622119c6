"""Reading a bundle safely: in a throw-away process, whose word is then checked. Usable from any process with a loop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shutil
import signal
import stat
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from functions.bundle import Inspected
from functions.calls import CallDecl
from functions.config import checks
from functions.errors import AuthorError, BundleRefused, CallerError, DespinaError, from_wire
from functions.manifest import Manifest
from functions.names import FUNCTION, TAG
from functions.paths import Limits, Tree
from functions.records import File
from workers.node import census
from workers.node.birth import MARK
from workers.node.guard import Guard
from workers.node.inspector import Sandbox, Task
from workers.node.rooms import KEPT, QUIET

log = logging.getLogger(__name__)

ANSWER_BYTES = 64 << 20
"""Longest answer taken from an inspection. 10,000 files of the longest paths are 6 MiB."""
_OUTPUT_BYTES = 64 * 1024
_OUTPUT_LINES = 20


async def inspect(source: Path, name: str, staging: Path, limits: Limits, sandbox: Sandbox | None = None) -> Inspected:
    """What is in the bundle at ``source`` (a directory or an archive), to be published as function ``name``.

    Its files are laid into a new directory inside ``staging``; the result's ``staging`` is the bundle's root there, and the
    caller's to remove. Raises BundleRefused with field and fix, naming the limit if one stopped it, or TooLarge; nothing stays
    in ``staging`` then. Author's code may run, in a process of its own; no process of it is left when this returns.
    """
    sandbox = sandbox or Sandbox()
    # The folder bears the function's name: a config may spell out the folder it was written in.
    room = staging / f"inspect-{secrets.token_hex(8)}"
    room.mkdir(parents=True, mode=0o700)
    try:
        line, output, status = await _run(source, name, room, limits, sandbox)
        if output:
            log.info("inspection_output function=%s output=%r", name, output[-2000:])
        if not line.endswith(b"\n"):
            raise BundleRefused(_death(status, output, limits, sandbox))
        found = believed(line, name, room / "bundle", limits)
        await asyncio.to_thread(_check_files, found, room)
        return found
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, room, ignore_errors=True)
        raise


async def _run(source: Path, name: str, room: Path, limits: Limits, sandbox: Sandbox) -> tuple[bytes, str, int | None]:
    """The answer's line (without its end if it has none), what was printed, and the exit status (None: it ran over the deadline)."""
    mark = f"inspection.{secrets.token_hex(12)}"
    work = room / "work"
    work.mkdir()
    reading, writing = os.pipe()
    process = None
    try:
        task = Task(source.absolute(), name, room / "bundle", writing, limits, sandbox)
        with (room / "output").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "workers.node.inspector", task.to_json()),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=_environment(work, mark),
                cwd=work,
                start_new_session=True,
                pass_fds=(writing,),
            )
        os.close(writing)
        writing = -1
        in_time, line = await _first_line(reading, sandbox.deadline_s)
        # Still alive, unless it crashed: whatever it started is found below it.
        ended = process.returncode if line.endswith(b"\n") or not in_time else await _ended(process)
        return line, _tail(room / "output"), ended if in_time else None
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
        if process is not None:
            groups = [process.pid] if process.returncode is None else []
            await asyncio.to_thread(census.exterminate, f"{MARK}={mark}", groups)
            await process.wait()
            assert process.stdin is not None
            process.stdin.close()
        await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
        (room / "output").unlink(missing_ok=True)


async def _first_line(descriptor: int, deadline_s: float) -> tuple[bool, bytes]:
    """Whether it came to an end in time, and what was read: up to the first line's end, or all there is."""
    reader = asyncio.StreamReader(limit=ANSWER_BYTES)
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(os.dup(descriptor), "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        async with asyncio.timeout(deadline_s):
            return True, await reader.readuntil(b"\n")
    except TimeoutError:
        return False, b""
    except asyncio.IncompleteReadError as error:
        return True, error.partial
    except asyncio.LimitOverrunError:
        raise BundleRefused(f"what was found in it is described by more than {ANSWER_BYTES >> 20} MiB, which is the limit") from None
    finally:
        transport.close()


async def _ended(process: asyncio.subprocess.Process) -> int | None:
    """Its exit status: the pipe has closed, so it ends, or a child of it has closed the pipe for it."""
    try:
        async with asyncio.timeout(5.0):
            return await process.wait()
    except TimeoutError:
        return None


def _environment(work: Path, mark: str) -> dict[str, str]:
    kept = {key: os.environ[key] for key in (*KEPT, Guard.VARIABLE) if key in os.environ}
    return {**kept, **QUIET, "HOME": str(work), "TMPDIR": str(work), MARK: mark}


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _OUTPUT_BYTES))
        return "\n".join(file.read(_OUTPUT_BYTES).decode("utf-8", "replace").splitlines()[-_OUTPUT_LINES:])


def _death(status: int | None, output: str, limits: Limits, sandbox: Sandbox) -> str:
    """Why an inspection ended without an answer, naming the limit."""
    said = f"; it wrote: {output[-500:]}" if output else ""
    if status is None:
        return f"inspecting it takes longer than {sandbox.deadline_s:g} s, which is the limit{said}"
    if status == -signal.SIGXCPU:
        return f"inspecting it takes more than {sandbox.cpu_s} s of processor time, which is the limit{said}"
    if status == -signal.SIGKILL:
        return f"inspecting it takes more than {sandbox.cpu_s} s of processor time, or more memory than the machine has{said}"
    if status == -signal.SIGXFSZ:
        return f"a file in it grows over {limits.total_bytes} bytes, which is the limit{said}"
    if "MemoryError" in output or "bad_alloc" in output:
        return f"inspecting it takes more than {sandbox.memory_bytes >> 20} MiB of memory, which is the limit{said}"
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
    return f"the process that inspected it died ({how}){said}"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Call(_Model):
    follow: Annotated[str, Field(pattern=f"^{TAG.pattern}$")] | None
    pinned: Annotated[int, Field(ge=1, lt=2**63)] | None
    shared: bool
    via: Literal["ensemble", "manifest", "source"]


class _Found(_Model):
    files: dict[str, tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], Annotated[int, Field(ge=0)], bool]]
    config: dict[str, Any]
    manifest: dict[str, Any]
    author_dir: str = Field(pattern=r"^([0-9]{1,19})?$")
    calls: dict[Annotated[str, Field(pattern=f"^{FUNCTION.pattern}$")], _Call]
    environment: Literal[""]
    warnings: list[Annotated[str, Field(max_length=10_000)]] = Field(max_length=10_000)
    staging: str


class _Refused(_Model):
    wire: int
    message: str
    reason: str
    field: str
    fix: str


class _Answer(_Model):
    inspected: _Found | None = None
    refused: _Refused | None = None


def believed(line: bytes, name: str, destination: Path, limits: Limits) -> Inspected:
    """The answer of an inspection as what it says, or raised as what it refuses. Author's code ran in the process that wrote it and
    may have written it instead: everything in it is checked as if a client had sent it. Raises BundleRefused for what cannot be."""
    try:
        answer = _Answer.model_validate_json(line)
        if answer.refused is not None:
            raise _refusal(answer.refused)
        if answer.inspected is None:
            raise ValueError("neither a result nor a refusal")
        return _checked(answer.inspected, name, destination, limits)
    except (ValidationError, ValueError) as error:
        log.warning("inspection_nonsense function=%s error=%s", name, error)
        raise BundleRefused("code in it has written nonsense in place of the inspection's answer") from None


def _refusal(refused: _Refused) -> DespinaError:
    if refused.wire == BundleRefused.wire:
        return BundleRefused(refused.reason, field=refused.field, fix=refused.fix)
    error = from_wire(refused.wire, refused.message)
    return error if isinstance(error, CallerError | AuthorError) else BundleRefused(refused.message)


def _checked(found: _Found, name: str, destination: Path, limits: Limits) -> Inspected:
    root = Path(found.staging)
    if root != destination and (root.parent != destination or root.name == ".."):
        raise ValueError(f"the files lie in {root}")
    tree = Tree(limits)
    for path, (_, size, _) in found.files.items():
        tree.add_file(path)
        tree.add_bytes(size)
    manifest = Manifest.model_validate_json(json.dumps(found.manifest)).to_json()
    config = checks.normalise(found.config, name, [], directory=name)
    return Inspected(
        files={path: File(*file) for path, file in found.files.items()},
        config=config,
        manifest=manifest,
        author_dir=found.author_dir,
        calls={callee: _call(call) for callee, call in found.calls.items()},
        environment=found.environment,
        warnings=tuple(found.warnings),
        staging=root,
    )


def _check_files(found: Inspected, room: Path) -> None:
    """Author's code may also have put a link or a pipe where a file was: whoever reads the files next must not meet it."""
    room = room.resolve()
    for path, file in found.files.items():
        place = found.staging / path
        status = place.lstat() if os.path.lexists(place) else None
        plain = status is not None and stat.S_ISREG(status.st_mode) and status.st_size == file.size
        if not plain or room not in place.resolve().parents:
            raise BundleRefused("code in it has changed the bundle while it was inspected", field=path)


def _call(call: _Call) -> CallDecl:
    if (call.follow is None) == (call.pinned is None):
        raise ValueError("a call that is both pinned and not")
    return CallDecl(call.follow, call.pinned, call.shared, call.via)
