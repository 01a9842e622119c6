# ruff: noqa: ARG002  (fakes keep the signatures of what they stand for)
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from functions.errors import BundleRefused, InvalidRequest, StartFailed
from functions.records import File
from gateway import deploy
from workers.fleet.promotion import Dependents

CONFIG = (
    'backend: "python"\nmax_batch_size: 0\n'
    'input [{ name: "X", data_type: TYPE_FP32, dims: [1] }]\noutput [{ name: "Y", data_type: TYPE_FP32, dims: [1] }]\n'
)
MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


def bundle(root: Path, name: str, *calls: str) -> Path:
    path = root / name
    (path / "1").mkdir(parents=True)
    (path / "config.pbtxt").write_text(CONFIG)
    (path / "1" / "model.py").write_text(MODEL)
    (path / "function.toml").write_text("[calls]\n" + "".join(f"{callee} = {{}}\n" for callee in calls))
    return path


class FakeServer:
    """Remembers what a client would have sent."""

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.sent: list[str] = []
        self.recorded: list[tuple[str, dict[str, int]]] = []
        self.releases: list[tuple[dict[str, int], str]] = []
        self.tags: dict[str, int] = {}
        self.broken = False

    def missing(self, sizes: dict[str, int]) -> list[str]:
        return sorted(sizes.keys() - self.known)

    def put_blob(self, sha256: str, path: Path, progress: Any) -> None:
        self.known.add(sha256)
        self.sent.append(path.name)
        progress(path.stat().st_size)

    def record(self, name: str, files: dict[str, File], with_: dict[str, int]) -> dict[str, Any]:
        self.recorded.append((name, with_))
        return {"name": name, "version": 10 + len(self.recorded)}

    def release(self, moves: dict[str, int], tag: str, dependents: Dependents, wait_s: float) -> dict[str, Any]:
        if self.broken:
            raise StartFailed("no weights")
        self.releases.append((moves, tag))
        self.tags |= moves
        return {"release": "r", "promotion": {"state": "moved", "reason": "", "dependents": []}}

    def pointed(self, name: str, tag: str) -> int | None:
        return self.tags.get(name)


class Counting:
    def __init__(self) -> None:
        self.bytes = 0

    def begin(self, name: str, size_bytes: int, missing_bytes: int) -> None:
        self.missing = missing_bytes

    def sent(self, size_bytes: int) -> None:
        self.bytes += size_bytes

    def recorded(self, version: Any) -> None: ...


def run(server: FakeServer, paths: list[Path], promote: bool = True) -> dict[str, Any]:
    bundles = deploy.read(paths)
    return deploy.deploy(server, bundles, Counting(), tag="live", promote=promote, dependents=Dependents.MOVE, wait_s=1)  # type: ignore[arg-type]


def test_callees_are_recorded_first_and_callers_are_locked_to_them(tmp_path: Path) -> None:
    paths = [bundle(tmp_path, "top", "mid", "elsewhere"), bundle(tmp_path, "mid", "leaf"), bundle(tmp_path, "leaf")]
    server = FakeServer(set())
    run(server, paths)

    assert [("leaf", {}), ("mid", {"leaf": 11}), ("top", {"mid": 12})] == server.recorded
    assert [({"leaf": 11, "mid": 12, "top": 13}, "live")] == server.releases


def test_only_what_the_server_lacks_travels(tmp_path: Path) -> None:
    path = bundle(tmp_path, "f")
    server = FakeServer(set())
    run(server, [path])
    (path / "1" / "model.py").write_text(MODEL + "# changed\n")
    server.sent.clear()
    run(server, [path])

    assert ["model.py"] == server.sent


def test_nothing_moves_without_promotion(tmp_path: Path) -> None:
    server = FakeServer(set())
    result = run(server, [bundle(tmp_path, "f")], promote=False)

    assert ([], "skipped") == (server.releases, result["promotion"]["state"])


def test_where_a_tag_was_and_is_comes_with_the_result(tmp_path: Path) -> None:
    path, server = bundle(tmp_path, "f"), FakeServer(set())

    assert [{"f": {"before": None, "after": 11}}, {"f": {"before": 11, "after": 12}}] == [run(server, [path])["tags"] for _ in range(2)]


def test_a_release_that_is_refused_is_told_beside_what_is_recorded(tmp_path: Path) -> None:
    server = FakeServer(set())
    server.broken = True
    result = run(server, [bundle(tmp_path, "f")])

    assert ("failed", "no weights") == (result["promotion"]["state"], result["promotion"]["reason"])
    assert ([("f", 11)], {"f": {"before": None, "after": None}}) == (
        [(version["name"], version["version"]) for version in result["versions"]],
        result["tags"],
    )


def test_bundles_that_call_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleRefused, match="circle"):
        deploy.read([bundle(tmp_path, "a", "b"), bundle(tmp_path, "b", "a")])


def test_a_bundle_that_cannot_be_read_here_is_left_to_the_server(tmp_path: Path) -> None:
    path = bundle(tmp_path, "f")
    (path / "config.pbtxt").write_text("nonsense {")

    assert frozenset() == deploy.read([path])[0].calls


@pytest.mark.parametrize("broken", ["missing", "file"])
def test_a_path_that_is_no_bundle_is_refused(tmp_path: Path, broken: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="not a directory"):
        deploy.read([tmp_path / broken])


def test_a_name_is_for_one_bundle(tmp_path: Path) -> None:
    paths = [bundle(tmp_path, "a"), bundle(tmp_path, "b")]
    with pytest.raises(InvalidRequest, match="--name"):
        deploy.read(paths, "c")

    assert "c" == deploy.read(paths[:1], "c")[0].name
