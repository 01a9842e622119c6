"""Which paths a bundle may have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.errors import BundleRefused, TooLarge
from functions.paths import Limits, Tree, checked

LIMITS = Limits()


@pytest.mark.parametrize(
    "path", ["a", "config.pbtxt", "1/model.py", "a/b/c", "ünïcode/日本", "with space", ".hidden", "a..b", "...", "C:x", "a" * 255]
)
def test_a_plain_relative_path_is_safe(path: str) -> None:
    assert tuple(path.split("/")) == checked(path, LIMITS)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/passwd", "absolute"),
        ("//x", "absolute"),
        ("..", "'..'"),
        ("../x", "'..'"),
        ("a/../../x", "'..'"),
        ("a/..", "'..'"),
        (".", "'.'"),
        ("./a", "'.'"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("", "empty part"),
        ("a\\b", "backslash"),
        ("..\\x", "backslash"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x7fb", "control character"),
        ("a\udc80", "not UTF-8"),
        ("a" * 256, "more than 255 bytes"),
        ("é" * 128, "more than 255 bytes"),
        ("/".join("a" * 33), "33 deep"),
        ("/".join(["a" * 200] * 3), "602 bytes"),
    ],
)
def test_an_unsafe_path_is_refused(path: str, message: str) -> None:
    with pytest.raises(BundleRefused, match=message):
        checked(path, LIMITS)


@given(st.text(max_size=40))
def test_a_checked_path_stays_inside_and_can_be_written(path: str) -> None:
    try:
        parts = checked(path, LIMITS)
    except BundleRefused:
        return

    assert not {"", ".", ".."} & set(parts)
    assert path == "/".join(parts)
    assert path.encode()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "A"),
        ("Dir/x", "dir/y"),
        ("a/Model.py", "a/model.py"),
        ("stra\u00dfe", "STRASSE"),
        ("e\u0301", "\u00e9"),
        ("\u212a", "k"),
    ],
)
def test_two_paths_that_one_file_system_takes_for_one_are_refused(first: str, second: str) -> None:
    tree = Tree(LIMITS)
    tree.add_file(first)
    with pytest.raises(BundleRefused, match="the same on some file systems"):
        tree.add_file(second)


def test_a_path_twice_is_refused() -> None:
    tree = Tree(LIMITS)
    tree.add_file("a")
    with pytest.raises(BundleRefused, match="twice"):
        tree.add_file("a")


def test_a_folder_may_be_met_again() -> None:
    tree = Tree(LIMITS)
    tree.add_folder("a")
    tree.add_file("a/x")
    tree.add_folder("a")

    assert tree.top == {"a": "folder"}


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
def test_a_path_cannot_be_a_file_and_a_folder(first: str, second: str) -> None:
    tree = Tree(LIMITS)
    tree.add_file(first)
    with pytest.raises(BundleRefused, match="a file and a folder"):
        tree.add_file(second)


@pytest.mark.parametrize("path", ["__pycache__/x.pyc", "1/__pycache__/model.cpython-311.pyc", "a/__pycache__/b/c"])
def test_pycache_is_no_part_of_a_bundle(path: str) -> None:
    tree = Tree(LIMITS)

    assert tree.add_file(path) is None
    assert tree.top == {}


def test_a_file_may_be_called_pycache() -> None:
    assert Tree(LIMITS).add_file("__pycache__") == "__pycache__"


def test_files_and_folders_together_are_limited() -> None:
    tree = Tree(Limits(files=3))
    tree.add_file("a/x")
    tree.add_file("a/y")
    with pytest.raises(TooLarge, match="more than 3 files and folders"):
        tree.add_file("a/z")


def test_folders_that_files_imply_are_counted() -> None:
    with pytest.raises(TooLarge):
        Tree(Limits(files=3)).add_file("a/b/c/d")


def test_skipped_entries_are_counted() -> None:
    tree = Tree(Limits(files=2))
    tree.add_file("__pycache__/a")
    tree.add_file("__pycache__/b")
    with pytest.raises(TooLarge):
        tree.add_file("__pycache__/c")


def test_bytes_are_limited_over_all_files() -> None:
    tree = Tree(Limits(total_bytes=10))
    tree.add_bytes(10)
    with pytest.raises(TooLarge, match="more than 10 bytes"):
        tree.add_bytes(1)
