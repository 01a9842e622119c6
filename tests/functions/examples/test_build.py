from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from functions.config.text import parse
from functions.examples import build, packages
from functions.examples.build import EXAMPLES, Example

PLAIN = (Example("identity"), Example("detect_text"))


def test_a_second_build_finds_nothing_to_do(tmp_path: Path) -> None:
    out, models = tmp_path / "out", tmp_path / "models"
    first = build.build_all(PLAIN, out, models)

    assert [out / "identity", out / "detect_text"] == first
    assert [] == build.build_all(PLAIN, out, models)


def test_a_bundle_whose_source_changed_is_built_again_and_only_that_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    build.build_all(PLAIN, out, tmp_path)
    real = build.fingerprint
    monkeypatch.setattr(build, "fingerprint", lambda example: real(example) + "x" * (example.name == "identity"))

    assert [out / "identity"] == build.build_all(PLAIN, out, tmp_path)


def test_a_bundle_that_was_deleted_is_built_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build.build_all(PLAIN, out, tmp_path)
    (out / "identity" / "1" / "model.py").unlink()
    (out / "identity" / "1").rmdir()
    (out / "identity" / "config.pbtxt").unlink()
    (out / "identity").rmdir()

    assert [out / "identity"] == build.build_all(PLAIN, out, tmp_path)


def test_what_is_no_example_any_more_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build.build_all(PLAIN, out, tmp_path)
    build.build_all(PLAIN[:1], out, tmp_path)

    assert ["identity"] == [path.name for path in out.iterdir() if path.is_dir()]


def test_an_ensemble_gets_the_empty_version_directory_that_triton_wants(tmp_path: Path) -> None:
    build.build_all(PLAIN, tmp_path / "out", tmp_path)

    assert (tmp_path / "out/detect_text/1").is_dir()


def test_building_leaves_nothing_else_behind(tmp_path: Path) -> None:
    build.build_all(PLAIN, tmp_path / "out", tmp_path)

    assert ["out"] == [path.name for path in tmp_path.iterdir()]


def test_the_careful_digits_differ_in_their_threshold_alone(tmp_path: Path) -> None:
    build.build_all((Example("digits"),), tmp_path / "out", tmp_path)
    build.build_all(build.CAREFUL, tmp_path / "careful", tmp_path)
    usual, careful = (parse((tmp_path / place / "digits/config.pbtxt").read_text()) for place in ("out", "careful"))

    assert {"string_value": "0.30"} == usual["parameters"].pop("threshold")
    assert {"string_value": "0.50"} == careful["parameters"].pop("threshold")
    assert usual == careful
    assert (tmp_path / "out/digits/1/model.py").read_bytes() == (tmp_path / "careful/digits/1/model.py").read_bytes()


def test_every_bundle_is_an_example_and_every_example_a_bundle() -> None:
    assert {path.name for path in (build.HERE / "bundles").iterdir()} == {example.name for example in EXAMPLES}


def test_examples_come_after_what_they_call() -> None:
    seen: set[str] = set()
    for example in EXAMPLES:
        bundle = build.HERE / "bundles" / example.name
        manifest = tomllib.loads((bundle / "function.toml").read_text()) if (bundle / "function.toml").is_file() else {}
        steps = parse((bundle / "config.pbtxt").read_text()).get("ensemble_scheduling", {}).get("step", [])

        assert {*manifest.get("calls", {}), *(step["model_name"] for step in steps)} <= seen
        seen.add(example.name)


def test_no_model_file_is_part_of_the_source() -> None:
    kinds = {path.suffix for path in build.HERE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}

    assert kinds == {".py", ".md", ".lock", ".pbtxt", ".toml"}


def test_every_model_package_is_pinned_by_version_and_hash() -> None:
    requirements = [line for line in packages.LOCK.read_text().replace("\\\n", " ").splitlines() if not line.startswith("#")]

    assert requirements
    assert all(re.fullmatch(r"[a-z-]+==\S+ +--hash=sha256:[0-9a-f]{64}", line) for line in requirements)


def test_a_fresh_build_of_a_trained_model_has_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    big = next(example for example in EXAMPLES if example.name == "digits_big")
    build.build_all((big,), tmp_path / "out", repository.parent / "models")

    assert (repository / "digits_big/1/model.onnx").read_bytes() == (tmp_path / "out/digits_big/1/model.onnx").read_bytes()
