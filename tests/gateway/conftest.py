"""One server for the tests that leave it as it was; those with limits of their own start another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.server import Served, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as started:
        yield started
