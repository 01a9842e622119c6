"""Where the data of one machine lies, and the lock that lets one ``despina up`` own it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from functions.errors import Conflict, InvalidRequest, NotFound

_RUN_BYTES = 60
"""Longest run directory: names of unix sockets in it must stay under 108 bytes."""


class Place:
    """The data directory, made and locked. ``close`` gives the lock back; the death of the process does too."""

    def __init__(self, data: Path) -> None:
        """Raises InvalidRequest for a directory that cannot be made or written, Conflict when another process owns it."""
        self.data = data = data.absolute()
        try:
            data.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidRequest(f"the data directory {data} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = _owner(self._lock)
            os.close(self._lock)
            raise Conflict(f"the data directory {data} is in use by another despina up (pid {owner})") from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)
        try:
            self.run = _run_directory(data)
            for directory in (self.cache, self.logs, self.staging, self.board, self.run, self.pages):
                directory.mkdir(parents=True, exist_ok=True)
                directory.chmod(0o700)
        except OSError as error:
            os.close(self._lock)
            raise InvalidRequest(f"the data directory {data} cannot be used: {error.strerror}: {error.filename}") from None

    @property
    def cache(self) -> Path:
        return self.data / "cache"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def staging(self) -> Path:
        return self.data / "staging"

    @property
    def board(self) -> Path:
        return self.data / "board"

    @property
    def pages(self) -> Path:
        return self.run / "pages"

    def close(self) -> None:
        os.close(self._lock)


def owner_of(data: Path) -> int:
    """The pid of the ``despina up`` that owns a data directory. Raises NotFound when none does."""
    try:
        lock = os.open(data / "up.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        raise NotFound(f"no despina up has ever run on {data}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return _owner(lock)
    finally:
        os.close(lock)
    raise NotFound(f"no despina up runs on {data}")


def _owner(lock: int) -> int:
    text = os.pread(lock, 20, 0)
    return int(text) if text.isdigit() else 0


def _run_directory(data: Path) -> Path:
    """``data/run``; where that is too long for sockets, a directory of this user's under the temporary one, the same each time."""
    run = data / "run"
    if len(os.fsencode(run)) <= _RUN_BYTES:
        return run
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    run = Path(tempfile.gettempdir()) / f"despina-{os.getuid()}-{name}"
    with contextlib.suppress(FileExistsError):
        run.mkdir(mode=0o700)
    found = run.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InvalidRequest(f"{run} belongs to somebody else; give --data a shorter path")
    return run
