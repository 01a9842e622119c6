"""A bundle's directory, put together again from blobs that the store holds: how an upload travels of which most is there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from functions.errors import InvalidRequest, NotFound
from functions.paths import Limits, Tree
from functions.records import File


def assemble(files: Mapping[str, File], destination: Path, fetch: Callable[[str, Path], None], total_bytes: int) -> None:
    """Make the new directory ``destination`` with ``files``. ``fetch(sha256, path)`` writes one blob, checked.

    Raises BundleRefused for an unsafe path, TooLarge over ``total_bytes`` or the limit of files, and InvalidRequest for a blob that
    was not uploaded or has another size. What is half made then is the caller's to remove."""
    tree = Tree(replace(Limits(), total_bytes=total_bytes))
    for path, file in files.items():
        if tree.add_file(path) is not None:
            tree.add_bytes(file.size)
    destination.mkdir()
    for path, file in files.items():
        place = destination / path
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            fetch(file.sha256, place)
        except NotFound:
            raise InvalidRequest(f"files.{path}: the blob {file.sha256} has not been uploaded") from None
        size = place.stat().st_size
        if size != file.size:
            raise InvalidRequest(f"files.{path}: the blob {file.sha256} has {size} bytes, not {file.size}")
        place.chmod(0o755 if file.executable else 0o644)
