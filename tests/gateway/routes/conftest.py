from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.interface import Interface


@pytest.fixture
def interface(tmp_path: Path) -> Interface:
    return Interface(tmp_path / "data")
