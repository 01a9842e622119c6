"""``file:///dir``: a directory as an object store. One key is one file; all writers must share one POSIX file system.

A write goes to a private file under ``<dir>/.writing/``, is synced, and then gets its name in one system call: ``rename`` where it may
replace an older object, ``link``, which fails if the name is taken, where it may not. So a killed writer leaves at most an
invisible file under ``.writing``; such files are removed by the next opening of the store a day later.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from functions.errors import InternalError, InvalidRequest, NotFound, StoreUnreachable
from registry.stores.base import Entry, checked

WRITING = ".writing"
ABANDONED_S = 86_400.0
"""Age in seconds at which a half-written file is surely nobody's any more."""
CHUNK = 1 << 20


class FileStore:
    """See Store for the promises."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.netloc or parts.query or parts.fragment or not parts.path.startswith("/") or parts.path == "/":
            raise InvalidRequest(f"store {url!r} is not file:///ABSOLUTE/DIRECTORY")
        self.url = url
        self.root = Path(unquote(parts.path))
        self._writing = self.root / WRITING
        try:
            self._writing.mkdir(parents=True, exist_ok=True)
            self._remove_abandoned()
        except OSError as error:
            raise StoreUnreachable(f"store {url} cannot be opened: {error.strerror} ({error.filename})") from error

    def get(self, key: str) -> bytes:
        with self._translated(key):
            return self._path(key).read_bytes()

    def fetch(self, key: str, path: Path) -> None:
        with self._translated(key):
            source = self._path(key).open("rb")
        # The destination is the caller's: its OSErrors are none of the store's business.
        with source, path.open("xb") as destination:
            shutil.copyfileobj(source, destination, CHUNK)

    def put(self, key: str, data: bytes) -> None:
        self._write(key, lambda file: file.write(data), replace=True)

    def put_file(self, key: str, path: Path) -> None:
        with path.open("rb") as source:
            self._write(key, lambda file: shutil.copyfileobj(source, file, CHUNK), replace=True)

    def create(self, key: str, data: bytes) -> bool:
        return self._write(key, lambda file: file.write(data), replace=False)

    def size(self, key: str) -> int | None:
        try:
            with self._translated(key):
                status = self._path(key).stat()
        except NotFound:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def list(self, prefix: str) -> Iterator[Entry]:
        if prefix:
            checked(prefix.removesuffix("/"))
        with self._translated(prefix):
            yield from self._walk(prefix.rpartition("/")[0], prefix)

    def delete(self, key: str) -> None:
        with suppress(NotFound), self._translated(key):
            path = self._path(key)
            path.unlink()
            _sync_directory(path.parent)

    def touch(self, key: str) -> None:
        if self.size(key) is None:
            raise NotFound(f"the store has no object {key!r}")
        with self._translated(key):
            os.utime(self._path(key))

    def _path(self, key: str) -> Path:
        return self.root / checked(key)

    def _write(self, key: str, fill: Callable[[BinaryIO], object], *, replace: bool) -> bool:
        path = self._path(key)
        draft = self._writing / uuid4().hex
        with self._translated(key):
            try:
                with draft.open("xb") as file:
                    fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                self._make_parents(path.parent)
                named = self._name(draft, path, replace=replace)
            finally:
                draft.unlink(missing_ok=True)
            _sync_directory(path.parent)
        return named

    @staticmethod
    def _name(draft: Path, path: Path, *, replace: bool) -> bool:
        """Give the finished draft its name. False if the name is taken and may not be replaced."""
        try:
            if replace:
                os.replace(draft, path)
            else:
                os.link(draft, path)
        except FileExistsError:
            return False
        except (IsADirectoryError, NotADirectoryError) as error:
            raise InternalError(f"{path} cannot be an object: a key is the beginning of another key's path") from error
        return True

    def _make_parents(self, directory: Path) -> None:
        """Like mkdir -p below the root, and durable: a new directory's name is synced in its parent."""
        if directory.is_dir():
            return
        self._make_parents(directory.parent)
        with suppress(FileExistsError):
            directory.mkdir()
        _sync_directory(directory.parent)

    def _walk(self, directory: str, prefix: str) -> Iterator[Entry]:
        """Entries below ``directory`` (a key without its last part; "" is the root), in the order of whole keys."""
        try:
            with os.scandir(self.root / directory) as found:
                children = [(child.name + "/" if child.is_dir(follow_symlinks=False) else child.name, child) for child in found]
        except (FileNotFoundError, NotADirectoryError):
            if not self._writing.is_dir():
                raise
            return
        for name, child in sorted(children, key=lambda pair: pair[0]):
            key = f"{directory}/{name}" if directory else name
            if not key.startswith(prefix) or name.startswith("."):
                continue
            if name.endswith("/"):
                yield from self._walk(key[:-1], prefix)
            else:
                with suppress(FileNotFoundError):
                    status = child.stat()
                    yield Entry(key, status.st_size, status.st_mtime)

    def _remove_abandoned(self) -> None:
        for draft in self._writing.iterdir():
            with suppress(FileNotFoundError):
                if draft.stat().st_mtime < time.time() - ABANDONED_S:
                    draft.unlink()

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        """The file system's errors as ours."""
        try:
            yield
        except FileNotFoundError as error:
            # A missing file is an answer; a missing store (unmounted, moved away) is not.
            if self._writing.is_dir():
                raise NotFound(f"the store has no object {key!r}") from error
            raise StoreUnreachable(f"store {self.url}: the directory {self.root} is gone") from error
        except (IsADirectoryError, NotADirectoryError) as error:
            raise NotFound(f"the store has no object {key!r}") from error
        except OSError as error:
            raise StoreUnreachable(f"store {self.url}: {error.strerror or error} ({key or self.root})") from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
