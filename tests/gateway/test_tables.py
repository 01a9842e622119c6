from __future__ import annotations

import pytest

from gateway import tables
from gateway.diff import Difference


def deployed(warning: str) -> dict[str, object]:
    version = {"name": "f", "version": 2, "digest": "sha256:" + "a" * 64, "lock": {}, "warnings": [warning]}
    return {
        "versions": [version],
        "tag": "live",
        "tags": {"f": {"before": 1, "after": 2}},
        "promotion": {"state": "moved", "reason": "", "dependents": [{"name": "g", "state": "moved", "reason": "", "version": 5}]},
    }


def test_a_deploy_shows_warnings_as_written_and_what_moved(capsys: pytest.CaptureFixture[str]) -> None:
    tables.deployed(deployed("write it into [calls] of function.toml [bold]now[/nonsense] :smile:"))
    lines = capsys.readouterr().out.splitlines()

    assert "  warning: write it into [calls] of function.toml [bold]now[/nonsense] :smile:" == lines[1]
    assert ["f live: 1 → 2", "  g follows, now as version 5"] == lines[2:]


def test_a_control_sequence_does_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tables.deployed(deployed("\x1b]0;title\x07"))
    tables.diff([Difference("files", "\x1b[2J[red]", None, 1)])
    shown = capsys.readouterr().out

    assert "\x1b" not in shown
    assert r"\x1b]0;title\x07" in shown
    assert r"\x1b[2J[red]" in shown


def test_a_table_that_is_piped_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    tables.diff([Difference("files", "a/" * 200, "b" * 300, None)])

    assert ["files", "a/" * 200, "b" * 300, "-"] == capsys.readouterr().out.splitlines()[1].split()
