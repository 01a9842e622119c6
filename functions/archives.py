"""Unpacking an archive that anybody may have sent: zip, tar, tar.gz.

Every name is checked before anything is written, links and devices are refused, and sizes are counted as bytes come out: what
an archive says about its own size is not believed. It runs in a process that may be killed; whoever calls it owns the
destination and throws it away after an error.
"""

from __future__ import annotations

import gzip
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Protocol

from functions.errors import BundleRefused, DespinaError, TooLarge
from functions.paths import Limits, Tree

CHUNK = 1 << 20
_TAR_HEADER = 1 << 20
"""Bytes of headers that one member of a tar may have, in all their extensions."""
_CENTRAL_ENTRY = 1024
"""Bytes in a zip's directory for each file that a bundle may have."""
_ZIP_TAIL = 128 * 1024
"""The end of a zip, in which zipfile looks for the directory's place: a comment of 64 KiB may stand behind it."""


def unpack(archive: Path, destination: Path, limits: Limits) -> Path:
    """Unpack into ``destination``, an empty folder, and return the bundle's root: the destination, or the one folder in it where
    the archive wraps everything in one (unless that is a version directory). Raises BundleRefused, or TooLarge over a limit."""
    writer = _Writer(destination, limits, archive.stat().st_size)
    with archive.open("rb") as file:
        magic = file.read(512)
        file.seek(0)
        if magic[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            _unzip(file, writer, limits)
        elif magic[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as plain:
                _untar(plain, writer)
        elif magic[257:262] == b"ustar":
            _untar(file, writer)
        else:
            raise BundleRefused("the body is neither a zip nor a tar nor a tar.gz archive", fix="pack the bundle's folder as one of these")
    top = writer.tree.top
    if not top:
        raise BundleRefused("the archive is empty", fix="pack the bundle's folder")
    name, kind = next(iter(top.items()))
    return destination / name if len(top) == 1 and kind == "folder" and not (name.isascii() and name.isdigit()) else destination


class _Reading(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


class _Writer:
    """Where members go. ``put`` takes over one file from a reader."""

    def __init__(self, destination: Path, limits: Limits, archive_bytes: int) -> None:
        self.tree = Tree(limits)
        self._destination = destination
        self._limits = limits
        self._archive_bytes = archive_bytes
        self._out = 0

    def folder(self, name: str) -> None:
        path = self.tree.add_folder(name)
        if path is not None:
            (self._destination / path).mkdir(parents=True, exist_ok=True)

    def put(self, name: str, executable: bool, read: Callable[[int], bytes]) -> None:
        path = self.tree.add_file(name)
        if path is None:
            self._copy(name, read, None)
            return
        target = self._destination / path
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755 if executable else 0o644)
        with open(descriptor, "wb") as file:
            self._copy(name, read, file)

    def _copy(self, name: str, read: Callable[[int], bytes], file: IO[bytes] | None) -> None:
        while True:
            with _broken(f"the member {name[:200]!r}"):
                chunk = read(CHUNK)
            if not chunk:
                return
            self._count(len(chunk))
            if file is not None:
                file.write(chunk)

    def _count(self, size: int) -> None:
        self.tree.add_bytes(size)
        self._out += size
        if self._out > max(self._limits.ratio_floor, self._limits.ratio * self._archive_bytes):
            raise TooLarge(
                f"the archive of {self._archive_bytes} bytes unpacks to more than {self._limits.ratio} times its size, which is the limit"
            )


@contextmanager
def _broken(what: str) -> Iterator[None]:
    """What the archive libraries raise on broken bytes (they promise no closed list), told as one refusal."""
    try:
        yield
    except DespinaError:
        raise
    except (
        *(tarfile.TarError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, struct.error),
        *(ValueError, OverflowError, RuntimeError, LookupError, OSError),
    ) as error:
        raise BundleRefused(f"{what} is broken: {error}"[:300], fix="pack it again") from error


class _CappedReads:
    """A zip file of which no single read may be huge: zipfile reads the whole directory at once, as long as the archive says."""

    def __init__(self, file: IO[bytes], cap: int) -> None:
        self._file, self.cap = file, cap
        self.seek, self.tell = file.seek, file.tell

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if size > self.cap:
            raise TooLarge(f"the zip archive has a directory of {size} bytes; the limit is {self.cap}")
        return self._file.read(size if size >= 0 else self.cap)


def _unzip(file: IO[bytes], writer: _Writer, limits: Limits) -> None:
    reads = _CappedReads(file, max(_ZIP_TAIL, limits.files * _CENTRAL_ENTRY))
    with _broken("the zip archive"):
        archive = zipfile.ZipFile(reads)
    reads.cap = CHUNK
    if len(archive.infolist()) > limits.files:
        raise TooLarge(f"the archive has {len(archive.infolist())} members; the limit is {limits.files}")
    for member in archive.infolist():
        name, mode = _zip_name(member), member.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise BundleRefused(f"{name[:200]!r} is a link or a device", fix="pack plain files and folders only")
        if member.flag_bits & 0x1:
            raise BundleRefused(f"{name[:200]!r} is encrypted", fix="pack it without a password")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BundleRefused(f"{name[:200]!r} is packed by method {member.compress_type}", fix="use deflate, or store it")
        if name.endswith("/") or stat.S_ISDIR(mode):
            if _plain(name):
                writer.folder(_plain(name))
            continue
        with _broken(f"the member {name[:200]!r}"):
            source = archive.open(member)
        with source:
            writer.put(_plain(name), bool(mode & 0o111), source.read)


def _zip_name(member: zipfile.ZipInfo) -> str:
    """The name as the author wrote it. Without the UTF-8 flag zipfile reads names as code page 437, though most tools wrote UTF-8."""
    name = member.orig_filename  # filename is cut at a NUL and has other separators replaced
    if member.flag_bits & 0x800 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode()
    except UnicodeError:
        raise BundleRefused(f"the name {name[:200]!a} is not UTF-8", fix="rename it, or pack it with UTF-8 names") from None


class _StrictTarInfo(tarfile.TarInfo):
    """tarfile takes a broken or missing header after the first for the end of the archive; half a bundle must not pass for a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictTarInfo:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error or 'a member is missing'}") from error


class _Metered:
    """A stream of which only so many bytes may be read until more are allowed: tarfile reads headers as long as they say they are."""

    def __init__(self, source: _Reading) -> None:
        self._source = source
        self._left = _TAR_HEADER

    def allow(self, size: int) -> None:
        """So many bytes of content, and the headers around it."""
        self._left = size + _TAR_HEADER

    def read(self, size: int = -1, /) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise TooLarge(f"the tar archive has more than {_TAR_HEADER} bytes that belong to no file")
        return data


def _untar(source: _Reading, writer: _Writer) -> None:
    stream = _Metered(source)
    with ExitStack() as stack:
        with _broken("the tar archive"):
            archive = stack.enter_context(tarfile.open(fileobj=stream, mode="r|", tarinfo=_StrictTarInfo))  # type: ignore[call-overload]
        while True:
            stream.allow(0)
            with _broken("the tar archive"):
                member = archive.next()
            if member is None:
                break
            _take(archive, member, stream, writer)
    with _broken("the end of the archive"):
        stream.allow(0)
        while stream.read(CHUNK):  # to the end, so that gzip checks its sum
            pass


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, stream: _Metered, writer: _Writer) -> None:
    name = _plain(member.name)
    if member.isdir():
        if name:
            writer.folder(name)
        return
    if not member.isreg() or member.issparse():
        raise BundleRefused(f"{member.name[:200]!a} is a link, a device or a sparse file", fix="pack plain files and folders only")
    stream.allow(member.size)
    with _broken(f"the member {member.name[:200]!a}"):
        content = archive.extractfile(member)
    if content is None:
        raise BundleRefused(f"{member.name[:200]!a} has no content", fix="pack it again")
    writer.put(name, bool(member.mode & 0o111), content.read)


def _plain(name: str) -> str:
    """A member's name without what packing a folder from inside puts around it: ``./1/`` → ``1``."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return "" if name == "." else name.rstrip("/") or name
