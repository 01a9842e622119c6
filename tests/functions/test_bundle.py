"""Walking a bundle's directory, and what was found in it."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from functions import bundle
from functions.bundle import Inspected, scan, version_directory
from functions.calls import MAX_SOURCE, CallDecl
from functions.errors import BundleRefused, TooLarge
from functions.paths import Limits
from functions.records import File, content_digest


def write(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    return root


def test_every_file_is_found_with_its_sum_size_and_x_bit(tmp_path: Path) -> None:
    write(tmp_path, "config.pbtxt", "1/model.py", "1/sub/a.bin", "warmup/x")
    (tmp_path / "1/model.py").chmod(0o755)
    (tmp_path / "empty").mkdir()

    assert scan(tmp_path) == {
        path: File(hashlib.sha256(path.encode()).hexdigest(), len(path), path == "1/model.py")
        for path in ("1/model.py", "1/sub/a.bin", "config.pbtxt", "warmup/x")
    }


def test_a_large_file_is_read_in_pieces(tmp_path: Path) -> None:
    content = os.urandom((2 << 20) + 5)
    (tmp_path / "big").write_bytes(content)

    assert scan(tmp_path)["big"] == File(hashlib.sha256(content).hexdigest(), len(content), False)


def test_pycache_and_times_and_order_do_not_matter(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "a", "b/c", "b/__pycache__/c.pyc", "__pycache__/x")
    two = write(tmp_path / "two", "b/c", "a")
    os.utime(two / "a", (1, 1))

    assert scan(one) == scan(two)
    assert content_digest(scan(one)) == content_digest(scan(two))


@pytest.mark.parametrize("target", ["config.pbtxt", "/etc/passwd", "nowhere", "."])
def test_a_symbolic_link_is_refused(target: str, tmp_path: Path) -> None:
    write(tmp_path, "config.pbtxt")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(BundleRefused, match="'link' is a link"):
        scan(tmp_path)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleRefused, match="'pipe' is a link, a device or a socket"):
        scan(tmp_path)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        with pytest.raises(BundleRefused, match="'sock'"):
            scan(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_refused(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "null", 0o020666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this machine lets nobody make devices")
    with pytest.raises(BundleRefused, match="'null'"):
        scan(tmp_path)


@pytest.mark.parametrize("name", [b"caf\xe9", b"a\nb", b"a\\b", b"\x7f"])
def test_a_name_that_is_not_the_same_everywhere_is_refused(name: bytes, tmp_path: Path) -> None:
    Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_text("")
    with pytest.raises(BundleRefused):
        scan(tmp_path)


def test_names_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "1/Model.py", "1/model.py")
    with pytest.raises(BundleRefused, match="the same on some file systems"):
        scan(tmp_path)


def test_a_hard_link_is_a_plain_file(tmp_path: Path) -> None:
    write(tmp_path, "a")
    os.link(tmp_path / "a", tmp_path / "b")

    assert scan(tmp_path)["a"] == scan(tmp_path)["b"]


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (Limits(files=2), TooLarge),
        (Limits(depth=2), BundleRefused),
        (Limits(path_bytes=4), BundleRefused),
        (Limits(total_bytes=8), TooLarge),
    ],
)
def test_each_limit_holds(limits: Limits, error: type[Exception], tmp_path: Path) -> None:
    write(tmp_path, "a/b/c", "d")
    (tmp_path / "d").write_text("123456789")
    with pytest.raises(error):
        scan(tmp_path, limits)


def files(paths: Sequence[str]) -> dict[str, File]:
    return {path: File("0" * 64, 1, False) for path in paths}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["1/model.py"], "1"),
        (["0/model.py"], "0"),
        (["37/a/b", "config.pbtxt"], "37"),
        (["9223372036854775807/model.py"], "9223372036854775807"),
        (["1/model.py", "warmup/1", "configs/x.pbtxt", "initial_state/s", "lib/2/x.py"], "1"),
    ],
)
def test_the_one_numeric_directory_is_the_version(paths: list[str], expected: str) -> None:
    warnings: list[str] = []

    assert expected == version_directory(files(paths), ensemble=False, warnings=warnings)
    assert not warnings


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "no version directory"),
        (["model.py"], "no version directory"),
        (["warmup/x"], "no version directory"),
        (["1/model.py", "2/model.py"], "2 version directories: 1, 2"),
        (["1a/model.py"], "'1a' is not a version"),
        (["-1/model.py"], "'-1' is not a version"),
        (["1/x", "2.0/x"], "'2.0' is not a version"),
        (["9223372036854775808/x"], "is not a version"),
        (["01/x"], "no version directory"),
    ],
)
def test_any_other_number_of_version_directories_is_refused(paths: list[str], message: str) -> None:
    with pytest.raises(BundleRefused, match=message):
        version_directory(files(paths), ensemble=False, warnings=[])


def test_an_ensemble_needs_no_version_directory_but_may_have_one() -> None:
    assert version_directory({}, ensemble=True, warnings=[]) == ""
    assert version_directory(files(["1/notes.txt"]), ensemble=True, warnings=[]) == "1"


def test_a_number_with_a_leading_zero_is_passed_by_with_a_warning() -> None:
    warnings: list[str] = []

    assert version_directory(files(["1/x", "02/x"]), ensemble=False, warnings=warnings) == "1"
    assert warnings == ["02: not a version directory, because it begins with 0; Triton ignores it too"]


def test_artifacts_are_the_names_at_the_top_of_the_version_directory() -> None:
    assert bundle.artifacts(files(["1/model.py", "1/model.onnx/w", "10/x", "config.pbtxt"]), "1") == {"model.py", "model.onnx"}


def test_sources_are_the_python_files_and_no_longer_than_they_are_read(tmp_path: Path) -> None:
    write(tmp_path, "1/model.py", "1/model.txt", "lib/a.py")
    (tmp_path / "long.py").write_bytes(b" " * (MAX_SOURCE + 100))
    found = bundle.sources(tmp_path, scan(tmp_path))

    assert {path: len(text) for path, text in found.items()} == {"1/model.py": 10, "lib/a.py": 8, "long.py": MAX_SOURCE + 1}


def test_what_was_found_crosses_a_process_boundary_as_json(tmp_path: Path) -> None:
    inspected = Inspected(
        files=files(["1/model.py"]),
        config={"name": "f"},
        manifest={"scale": {}},
        author_dir="1",
        calls={"a": CallDecl("canary", None, via="manifest"), "b": CallDecl(None, 3)},
        environment="",
        warnings=("w",),
        staging=tmp_path,
    )

    assert inspected == Inspected.from_json(json.loads(json.dumps(inspected.to_json())))
