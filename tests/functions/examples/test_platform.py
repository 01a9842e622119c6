from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from functions.examples import platform
from functions.examples.platform import Platform, PlatformFailed


def test_free_ports_differ() -> None:
    assert len(set(platform.free_ports(20))) == 20


def test_descendants_are_found_through_their_parents_and_zombies_do_not_count() -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); sys.stdin.read(); p.kill(); p.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        grandchild = int(child.stdout.readline())

        assert {child.pid, grandchild} <= set(platform.descendants(os.getpid()))
        assert platform.command_line(grandchild) == f"{grandchild} sleep 60"

        child.stdin.close()
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not {child.pid, grandchild} & set(platform.descendants(os.getpid()))


def test_a_platform_that_ends_before_it_is_ready_is_reported_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "COMMAND", script(tmp_path, "echo 'the port is in use' >&2; exit 2"))

    with pytest.raises(PlatformFailed, match="exit code 2\nthe port is in use"):
        Platform(tmp_path / "data")


def test_a_platform_tells_where_it_serves_runs_commands_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        platform,
        "COMMAND",
        script(
            tmp_path,
            'case $1 in ls) echo "{\\"url\\": \\"$DESPINA_URL\\", \\"words\\": \\"$*\\"}";; bad) echo sorry >&2; exit 1;;\n'
            "up) trap 'exit 0' TERM; echo ready http=http://127.0.0.1:1 metrics=http://127.0.0.1:2/metrics\n"
            "while :; do sleep 0.02; done;; esac",
        ),
    )
    running = Platform(tmp_path / "data")

    assert (running.url, running.metrics_url) == ("http://127.0.0.1:1", "http://127.0.0.1:2/metrics")
    assert running.command("ls", "x") == {"url": "http://127.0.0.1:1", "words": "ls x --json"}
    with pytest.raises(PlatformFailed, match=r"despina bad: exit code 1: sorry"):
        running.command("bad")
    assert running.stop() == 0


def script(directory: Path, lines: str) -> Path:
    """A stand-in for the command."""
    path = directory / "despina"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path
