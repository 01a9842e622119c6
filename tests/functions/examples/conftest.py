"""The example bundles, built once where ``make demo`` builds them too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.functions.examples.driver import Driver

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def repository() -> Path:
    built = subprocess.run([sys.executable, "-m", "functions.examples.build"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    if "pip could not install" in built.stderr:
        pytest.skip(f"the model packages of functions/examples/models.lock are not here and could not be fetched: {built.stderr[-300:]}")

    assert built.returncode == 0, built.stderr
    return ROOT / ".build/examples"


@pytest.fixture
def driver(repository: Path) -> Driver:
    return Driver(repository)
