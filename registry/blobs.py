"""The bytes of files by their sha256: what is put is checked, what is fetched is checked, what is reused stays a while longer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from functions.errors import InternalError, InvalidRequest, NotFound
from registry import keys
from registry.parallel import each
from registry.stores.base import Store


class Blobs:
    """The blobs of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def missing(self, wanted: Mapping[str, int]) -> list[str]:
        """Of ``wanted`` (sha256 → size in bytes), those the store lacks, sorted. The others are touched, so that the sweep leaves
        them alone for a day. Raises InvalidRequest for a malformed sha256, or a size that is not the stored one."""
        shas = sorted(wanted)
        return [sha for sha, lacking in zip(shas, each(lambda sha: self._lacks(sha, wanted[sha]), shas), strict=True) if lacking]

    def put(self, sha256: str, path: Path) -> None:
        """Store the file at ``path`` under its digest. Raises InvalidRequest when its bytes have another digest."""
        actual = file_sha256(path)
        if actual != sha256:
            keys.blob(sha256)
            raise InvalidRequest(f"the bytes sent as blob {sha256} have sha256 {actual}")
        self._store.put_file(keys.blob(sha256), path)

    def put_missing(self, files: Mapping[str, Path], sizes: Mapping[str, int]) -> None:
        """Make sure the store holds each of ``files`` (sha256 → where its bytes lie). What is there already is touched."""
        each(lambda sha: self.put(sha, files[sha]), self.missing(sizes))

    def fetch(self, sha256: str, path: Path) -> None:
        """Write the blob to the new file ``path``. Raises NotFound; InternalError when the stored bytes are damaged, with the
        file removed."""
        self._store.fetch(keys.blob(sha256), path)
        actual = file_sha256(path)
        if actual != sha256:
            path.unlink()
            raise InternalError(f"blob {sha256} is damaged in the store: its bytes have sha256 {actual}")

    def _lacks(self, sha256: str, size: int) -> bool:
        key = keys.blob(sha256)
        stored = self._store.size(key)
        if stored is None:
            return True
        if stored != size:
            raise InvalidRequest(f"blob {sha256} is {stored} bytes long, not {size}")
        try:
            self._store.touch(key)
        except NotFound:
            # The sweep took it between the two calls.
            return True
        return False


def file_sha256(path: Path) -> str:
    """Lower-case hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
