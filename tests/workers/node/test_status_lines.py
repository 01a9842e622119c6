from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.errors import InternalError, NoCapacity, StartFailed
from workers.node.messages import State
from workers.node.status_lines import MAX_LINE, Failed, Phase, Progress, StatusLines, read

STREAM = b'{"state":"loading"}\n{"phase":"imported","seconds":0.5}\n{"state":"ready","credit":2}\n'


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_however_the_bytes_arrive_the_same_is_said(cuts: list[int]) -> None:
    lines = StatusLines()
    edges = [0, *sorted(cuts), len(STREAM)]
    said = [each for start, end in pairwise(edges) for each in lines.feed(STREAM[start:end])]

    assert [Progress(State.LOADING), Phase("imported", 0.5), Progress(State.READY)] == said


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"[]", b"1", b"null", b"\xff", b"[" * 50_000),
        *(b'{"state": "flying"}', b'{"state": "stopped"}', b'{"state": "busy"}', b'{"state": 1}'),
        *(b'{"phase": "lunch", "seconds": 1}', b'{"phase": "loaded", "seconds": "1"}', b'{"phase": "loaded", "seconds": NaN}'),
    ],
)
def test_what_is_not_known_says_nothing(line: bytes) -> None:
    assert read(line) is None


FAILURES = [
    (302, StartFailed),
    (204, NoCapacity),
    (900, InternalError),
    (102, StartFailed),
    (12345, InternalError),
    ("x", StartFailed),
    (None, StartFailed),
]


@pytest.mark.parametrize(("wire", "kind"), FAILURES)
def test_a_failure_is_the_authors_the_operators_or_ours_never_a_callers(wire: object, kind: type) -> None:
    said = read(json.dumps({"state": "failed", "wire": wire, "message": "no"}).encode())

    assert isinstance(said, Failed)
    assert isinstance(said.error, kind)
    assert "no" in said.error.message


def test_a_line_without_end_is_skipped_and_the_next_one_heard() -> None:
    lines = StatusLines()
    said = [each for _ in range(10) for each in lines.feed(b"x" * (MAX_LINE // 4))]
    said += lines.feed(b"x\n" + STREAM)

    assert 3 == len(said)
