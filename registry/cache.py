"""A machine's copy of what it runs: versions laid out as directories, over the blobs they share.

    <dir>/blobs/<64 hex>[.x]                       one file's bytes, checked; .x for those that may be executed
    <dir>/versions/<name>@<V>-<16 hex>/<name>/     a model directory: config.pbtxt, <V>/…, and a link <author's directory> → <V>
    <dir>/building/                                what is not finished; emptied when the cache is opened

A model directory's files are hard links to the blobs, so ten versions that share a 500 MB file take 500 MB. Everything may be
removed at any time that nothing runs; it is fetched again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from threading import Lock
from uuid import uuid4

from functions.errors import NoCapacity
from functions.names import Ref
from functions.records import File, VersionRecord
from registry.blobs import Blobs, file_sha256
from registry.parallel import each
from registry.stores.base import Store

LIMIT_BYTES = 32 << 30
GRACE_S = 600.0
"""For so many seconds after it was asked for, a version is taken to be in use: its replica may not have started yet."""
ABANDONED_S = 86_400.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Cache:
    """The model directories of one machine. Safe to use from any thread and process; whole directories appear at once.

    ``limit_bytes`` bounds the blobs: after each addition the versions that were asked for longest ago go, but never those that
    ``in_use`` names at that moment (what runs must stay, if need be above the limit), nor those younger than ``grace_s``.
    """

    def __init__(
        self,
        store: Store,
        directory: Path,
        limit_bytes: int = LIMIT_BYTES,
        in_use: Callable[[], Collection[Ref]] = frozenset,
        grace_s: float = GRACE_S,
    ) -> None:
        self._store_blobs = Blobs(store)
        self._limit_bytes = limit_bytes
        self._in_use = in_use
        self._grace_s = grace_s
        self._blobs = directory / "blobs"
        self._versions = directory / "versions"
        self._building = directory / "building"
        self._stamp_ns = _stamp_ns()
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._locking = Lock()
        for part in (self._blobs, self._versions, self._building):
            part.mkdir(parents=True, exist_ok=True)
        self._remove_abandoned()

    def materialise(self, record: VersionRecord) -> Path:
        """The model directory of a version, made if it is not there, and made again if its files were changed. Valid until
        the version leaves ``in_use`` and others need its room.

        Raises NotFound for a blob the store has lost, InternalError for a damaged one, StoreUnreachable, and NoCapacity for a
        version that is larger than the whole cache."""
        if record.size_bytes > self._limit_bytes:
            raise NoCapacity(f"{record.ref} is {record.size_bytes} bytes large; this machine's cache holds {self._limit_bytes}")
        place = self._versions / f"{record.ref}-{record.digest.rpartition(':')[2][:16]}"
        with self._locking:
            lock = self._locks[place.name]
        with lock:
            intact = place.is_dir() and self._intact(place, record)
            if intact:
                os.utime(place)
            else:
                self._build(place, record)
        if not intact:
            self._trim({*self._in_use(), record.ref})
        return place / record.name

    def _build(self, place: Path, record: VersionRecord) -> None:
        draft = self._building / uuid4().hex
        model_dir = draft / record.name
        try:
            (model_dir / str(record.version)).mkdir(parents=True)
            if record.author_dir not in ("", str(record.version)):
                (model_dir / record.author_dir).symlink_to(str(record.version))
            files = [(_placed(model_dir, record, path), file) for path, file in record.files.items()]
            for directory in {path.parent for path, _ in files}:
                directory.mkdir(parents=True, exist_ok=True)
            each(lambda placed: self._lay(*placed), files)
            self._move_in(draft, place, record)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _lay(self, path: Path, file: File) -> None:
        """Put the bytes of ``file`` at ``path``: a link to the blob, if this machine has it, or else fetched and shared."""
        blob = self._blobs / f"{file.sha256}{'.x' if file.executable else ''}"
        with suppress(FileNotFoundError):
            path.hardlink_to(blob)
            if self._usable(path, file):
                return
            path.unlink()
        self._store_blobs.fetch(file.sha256, path)
        path.chmod(0o555 if file.executable else 0o444)
        self._stamp(path)
        # Under another name first: rename is how it takes the place of a damaged blob.
        shared = self._building / uuid4().hex
        shared.hardlink_to(path)
        shared.replace(blob)

    def _move_in(self, draft: Path, place: Path, record: VersionRecord) -> None:
        """Give the finished directory its name. Where there is one already, it stays if another process has just built it, and
        goes if it was damaged."""
        while True:
            try:
                draft.rename(place)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if self._intact(place, record):
                return
            self._remove(place)

    def _intact(self, place: Path, record: VersionRecord) -> bool:
        """Whether all files are as they were laid. Looks at sizes and stamps only."""
        model_dir = place / record.name
        try:
            return (model_dir / str(record.version)).is_dir() and all(
                self._as_stamped(_placed(model_dir, record, path), file) for path, file in record.files.items()
            )
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _usable(self, path: Path, file: File) -> bool:
        """Whether a blob's bytes are right. Those of an earlier boot, or touched since, are hashed: a machine that lost power may
        have lost some of them."""
        if self._as_stamped(path, file):
            return True
        if path.stat().st_size != file.size or file_sha256(path) != file.sha256:
            return False
        self._stamp(path)
        return True

    def _as_stamped(self, path: Path, file: File) -> bool:
        status = path.stat()
        return status.st_size == file.size and status.st_mtime_ns == self._stamp_ns

    def _stamp(self, path: Path) -> None:
        os.utime(path, ns=(self._stamp_ns, self._stamp_ns))

    def _trim(self, keep: Collection[Ref]) -> None:
        """Remove versions, the longest unused first, and the blobs they leave behind, until the limit is kept."""
        kept = tuple(f"{ref}-" for ref in keep)
        over = self._remove_orphans() - self._limit_bytes
        for place in self._longest_unused():
            if over <= 0:
                return
            if not place.name.startswith(kept):
                self._remove(place)
                over = self._remove_orphans() - self._limit_bytes

    def _longest_unused(self) -> list[Path]:
        used: dict[Path, float] = {}
        for place in self._versions.iterdir():
            with suppress(FileNotFoundError):
                used[place] = place.stat().st_mtime
        return sorted((place for place, at in used.items() if at < time.time() - self._grace_s), key=used.__getitem__)

    def _remove_orphans(self) -> int:
        """Remove blobs that no version links to while the limit is passed; how many bytes remain. A builder that was about to
        link to one fetches it again."""
        sizes: dict[Path, os.stat_result] = {}
        for blob in self._blobs.iterdir():
            with suppress(FileNotFoundError):
                sizes[blob] = blob.stat()
        total = sum(status.st_size for status in sizes.values())
        for blob, status in sizes.items():
            if total > self._limit_bytes and status.st_nlink == 1:
                blob.unlink(missing_ok=True)
                total -= status.st_size
        return total

    def _remove(self, place: Path) -> None:
        """Out of sight in one call, then away."""
        gone = self._building / uuid4().hex
        with suppress(FileNotFoundError):
            place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _remove_abandoned(self) -> None:
        for draft in self._building.iterdir():
            with suppress(FileNotFoundError):
                if draft.lstat().st_mtime < time.time() - ABANDONED_S:
                    draft.unlink() if draft.is_file() else shutil.rmtree(draft, ignore_errors=True)


def _placed(model_dir: Path, record: VersionRecord, path: str) -> Path:
    """Where a file of the bundle lies in the model directory: what the author kept in their numeric directory lies in ``<V>``."""
    top, _, rest = path.partition("/")
    return model_dir / str(record.version) / rest if rest and top == record.author_dir else model_dir / path


def _stamp_ns() -> int:
    """The modification time that marks a file as checked since this machine was booted, in ns since the epoch. It lies in the years
    2000 to 2017 and differs from boot to boot, so any write, and any loss of power, shows."""
    boot = hashlib.sha256(_BOOT_ID.read_bytes()).digest()
    return (946_684_800 + int.from_bytes(boot[:4], "little") % (1 << 29)) * 1_000_000_000
