"""What every example bundle owes the platform that it is an example for."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from functions import graph, manifest
from functions.calls import declared_calls
from functions.config import checks
from functions.config.spec import ModelConfig
from functions.config.text import parse
from functions.examples import build

BUNDLES = [build.HERE / "bundles" / example.name for example in build.EXAMPLES]


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_its_configuration_is_accepted_without_a_warning(bundle: Path) -> None:
    warnings: list[str] = []
    config = checks.normalise(parse((bundle / "config.pbtxt").read_text()), bundle.name, warnings)

    assert warnings == []
    assert config["name"] == bundle.name


@pytest.mark.parametrize("bundle", [bundle for bundle in BUNDLES if (bundle / "1/model.py").exists()], ids=lambda bundle: bundle.name)
def test_its_code_needs_nothing_more_than_numpy_opencv_and_tritons_module(bundle: Path) -> None:
    tree = ast.parse((bundle / "1/model.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}

    assert imported - sys.stdlib_module_names <= {"cv2", "numpy", "triton_python_backend_utils"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_what_it_calls_is_declared_and_found_without_a_warning(bundle: Path) -> None:
    path = bundle / "function.toml"
    checked = manifest.parse(path.read_text() if path.is_file() else "")
    sources = {str(source.relative_to(bundle)): source.read_text() for source in bundle.rglob("*.py")}
    found, warnings = declared_calls(configuration(bundle), checked.to_json(), sources)

    assert warnings == ()
    assert set(found) <= {example.name for example in build.EXAMPLES}
    assert "source" not in {call.via for call in found.values()}


def test_the_ensemble_fits_its_steps() -> None:
    configs = {bundle.name: ModelConfig.of(configuration(bundle)) for bundle in BUNDLES}
    graph.check_steps(configs["detect_text"])
    graph.check_tensors(configs["detect_text"], configs)


def configuration(bundle: Path) -> dict[str, Any]:
    return checks.normalise(parse((bundle / "config.pbtxt").read_text()), bundle.name, [])
