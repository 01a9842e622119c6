from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from functions.errors import BundleRefused, InvalidRequest, NotFound, TooLarge
from functions.records import File
from gateway.assembly import assemble

DATA = b"print(1)\n"
SHA = hashlib.sha256(DATA).hexdigest()


def fetch(sha256: str, path: Path) -> None:
    if sha256 != SHA:
        raise NotFound("no such blob")
    path.write_bytes(DATA)


def test_files_lie_where_they_were_with_their_x_bits(tmp_path: Path) -> None:
    assemble({"1/model.py": File(SHA, 9, False), "1/run.sh": File(SHA, 9, True)}, tmp_path / "b", fetch, 100)

    assert DATA == (tmp_path / "b/1/model.py").read_bytes()
    assert [0, 0o111] == [(tmp_path / "b/1" / name).stat().st_mode & 0o111 for name in ("model.py", "run.sh")]


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "a//b", "", ".", "a\\b", "a\0b", "a/", "\ud800"])
def test_a_path_that_leaves_the_bundle_is_refused_and_nothing_is_written(tmp_path: Path, path: str) -> None:
    with pytest.raises(BundleRefused):
        assemble({path: File(SHA, 9, False)}, tmp_path / "b", fetch, 100)

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "kind", "says"),
    [
        (File("0" * 64, 9, False), InvalidRequest, "has not been uploaded"),
        (File(SHA, 8, False), InvalidRequest, "has 9 bytes, not 8"),
        (File(SHA, 101, False), TooLarge, "limit"),
    ],
)
def test_a_blob_that_is_missing_or_of_another_size_is_refused(tmp_path: Path, file: File, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        assemble({"f": file}, tmp_path / "b", fetch, 100)
