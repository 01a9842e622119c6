"""One platform for all the flows of a file; files that break things start their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.platform import Platform, running


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with running(tmp_path_factory.mktemp("up") / "data") as started:
        yield started


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    made = tmp_path / "bundles"
    made.mkdir()
    return made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/flows/" in item.nodeid:
            item.add_marker(pytest.mark.flow)
            item.add_marker(pytest.mark.timeout(300))
