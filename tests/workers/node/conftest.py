"""Real processes for the node's tests: each test gets an instance token, and nothing that carries it survives the test."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.node import census
from workers.node.guard import Guard


@pytest.fixture
def token() -> Iterator[str]:
    """An instance token; whatever carries it at the end is killed."""
    token = secrets.token_hex(16)
    yield token
    census.exterminate(f"{Guard.VARIABLE}={token}")


@pytest.fixture
def guard(token: str) -> Iterator[Guard]:
    guard = Guard.start(token)
    yield guard
    guard.close()


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for socket names (a unix socket's path has at most 107 bytes)."""
    with tempfile.TemporaryDirectory(prefix="dn-", ignore_cleanup_errors=True) as path:
        yield Path(path)
