"""``despina up`` and the command line as processes: what is refused, and one whole life."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.place import Place
from tests.processes import alive, mentioning

DESPINA = str(Path(sys.executable).with_name("despina"))
CONFIG = (
    'backend: "python"\nmax_batch_size: 8\n'
    'input [{ name: "X", data_type: TYPE_FP32, dims: [2] }]\noutput [{ name: "Y", data_type: TYPE_FP32, dims: [2] }]\n'
)
TOKEN = "a token of the tests"
MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy() * FACTOR)]) for r in requests]
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DESPINA_")}
    return subprocess.run([DESPINA, *arguments], env={**kept, **environment}, capture_output=True, text=True, timeout=90)


def refused(*arguments: str, **environment: str) -> str:
    """The one line with which ``despina up`` ends at once, with exit code 2."""
    done = run("up", *arguments, **environment)

    assert (2, "") == (done.returncode, done.stdout), done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr
    return done.stderr


@pytest.mark.parametrize("what", ["http", "metrics"])
def test_a_port_in_use_is_refused(tmp_path: Path, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ports = {"http": "0", "metrics": "0", what: port}
        line = refused("--data", str(tmp_path / "d"), "--http-port", ports["http"], "--metrics-port", ports["metrics"])

    assert f"port {port} of 127.0.0.1" in line
    assert "is in use" in line


def test_a_data_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert "cannot be used" in refused("--data", str(tmp_path / "file" / "d"))


def test_a_bundle_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    assert "nowhere is not a directory" in refused("--data", str(tmp_path / "d"), "--deploy", str(tmp_path / "nowhere"))
    assert not (tmp_path / "d").exists()


def test_the_version_and_the_help_are_shown_without_markup() -> None:
    assert "despina 0." in run("--version").stdout
    assert "`" not in run("--help").stdout
    assert ".local/state/despina" in run("up", "--help", COLUMNS="200").stdout


def test_a_second_platform_on_the_same_data_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path / "d")
    try:
        assert f"pid {os.getpid()}" in refused("--data", str(tmp_path / "d"))
    finally:
        place.close()


def test_a_wrong_setting_is_refused(tmp_path: Path) -> None:
    data = str(tmp_path / "d")

    assert "DESPINA_ADMIN_TOKEN" in refused("--data", data, "--host", "0.0.0.0")
    assert "DESPINA_TYPO" in refused("--data", data, DESPINA_TYPO="1")
    assert "tls_key" in refused("--data", data, "--tls-cert", "x.pem")
    assert 2 == run("up", "--nonsense").returncode


def test_a_command_without_a_server_says_so_with_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    done = run("ls", DESPINA_URL=url)

    assert (2, "") == (done.returncode, done.stdout)
    assert f"no answer from {url}" in done.stderr


def test_nothing_is_stopped_where_nothing_runs(tmp_path: Path) -> None:
    assert 1 == run("down", "--data", str(tmp_path)).returncode


class Up:
    """A running platform with one deployed function, ``double``."""

    def __init__(self, root: Path) -> None:
        self.root, self.data = root, root / "data"
        double = bundle(root, "double", 2)
        with (root / "up.log").open("wb") as log:
            self.process = subprocess.Popen(
                [DESPINA, "up", "--data", str(self.data), "--http-port", "0", "--metrics-port", "0", "--deploy", str(double)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "DESPINA_ADMIN_TOKEN": TOKEN},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()

        assert line.startswith("ready http="), (root / "up.log").read_text()
        self.url = line.split()[1].removeprefix("http=")

    def command(self, *arguments: str, code: int = 0) -> Any:
        """The JSON that a command prints, or what it says when it fails."""
        done = run(*arguments, DESPINA_URL=self.url, DESPINA_ADMIN_TOKEN=TOKEN)

        assert code == done.returncode, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    def said(self, *arguments: str) -> str:
        """What a command shows to people."""
        done = run(*arguments, DESPINA_URL=self.url, DESPINA_ADMIN_TOKEN=TOKEN)

        assert 0 == done.returncode, done.stderr
        return done.stdout


def bundle(root: Path, name: str, factor: int) -> Path:
    path = root / name
    (path / "1").mkdir(parents=True, exist_ok=True)
    (path / "config.pbtxt").write_text(CONFIG)
    (path / "1" / "model.py").write_text(MODEL.replace("FACTOR", str(factor)))
    return path


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    platform = Up(tmp_path_factory.mktemp("up"))
    try:
        yield platform
    finally:
        if platform.process.poll() is None:
            platform.process.send_signal(signal.SIGTERM)
            platform.process.wait(60)
        assert platform.process.stdout is not None
        platform.process.stdout.close()


@pytest.mark.flow
@pytest.mark.timeout(300)
def test_a_function_lives_its_life_on_the_command_line(up: Up) -> None:
    assert [2.0, 4.0] == up.command("invoke", "double", "--input", "X=[[1, 2]]")["outputs"][0]["data"]
    assert "does not fit" in up.command("invoke", "double", "--input", "X=[1, 2, 3]", code=1)

    deployed = up.command("deploy", str(bundle(up.root, "double", 3)), "--json")

    assert [("double", 2)] == [(version["name"], version["version"]) for version in deployed["versions"]]
    assert [3.0, 6.0] == up.command("invoke", "double", "--input", "X=[1, 2]")["outputs"][0]["data"]
    assert [2.0, 4.0] == up.command("invoke", "double@1", "--input", "X=[1, 2]")["outputs"][0]["data"]

    differing = up.command("diff", "double", "1", "live", "--json")

    assert [("files", "1/model.py")] == [(difference["part"], difference["what"]) for difference in differing]
    assert 1 == up.command("rollback", "double", "--json")["version"]
    assert [2.0, 4.0] == up.command("invoke", "double", "--input", "X=[1, 2]")["outputs"][0]["data"]
    assert 2 == up.command("tag", "double", "canary", "2", "--json")["version"]
    assert {"canary": 2, "live": 1} == up.command("ls", "--json")[0]["tags"]
    assert {"max": 3} == up.command("scale", "double", "--max", "3", "--json")
    assert {} == up.command("scale", "double", "--reset", "--json")
    assert "double" == up.command("show", "double", "--json")["name"]
    assert up.command("logs", "double", "--json")["lines"]
    assert "has no tag" in up.command("rollback", "double", "--to", "never", code=1)
    failed = up.command("deploy", str(_broken(up.root)), code=1)

    assert "broken@1 is recorded but not promoted; broken has no tag 'live' yet: " in failed
    assert "no weights" in failed
    assert "no weights" in up.command("tag", "broken", "new", "1", code=1)
    assert "no weights" in up.command("show", "broken", "--json")["failures"][0]["reason"]


@pytest.mark.flow
@pytest.mark.timeout(300)
def test_people_are_told_what_moved_and_what_a_function_takes(up: Up) -> None:
    named = bundle(up.root, "triple", 3)

    assert "triple live: new → 1" in up.said("deploy", str(named))
    assert "triple live stays at 1" in up.said("deploy", str(named))

    bundle(up.root, "triple", 4)

    assert "triple live: 1 → 2" in up.said("deploy", str(named))
    assert "triple live: 2 → 1" in up.said("rollback", "triple")
    assert "triple canary: new → 1" in up.said("tag", "triple", "canary", "live")

    page = up.said("show", "triple")

    assert ["output", "Y", "FP32", "[-1, 2]"] in [" ".join(line.split()).split(maxsplit=3) for line in page.splitlines()]
    assert "scale: min = 0, max = -, target = -, idle_s = 60.0" in page
    moves = [line.split() for line in page.splitlines() if " rollback" in line or " promote" in line or " set" in line]

    assert [["canary", "1"], ["live", "1"], ["live", "2"], ["live", "1"]] == [words[:2] for words in moves]
    assert "triple@2 is deleted" in up.said("rm", "triple@2")
    assert "has no tag 'prod'" in up.command("invoke", "triple@prod", "--input", "X=[1, 2]", code=1)
    assert "has no tag 'prod'" in up.command("logs", "triple", "--version", "prod", code=1)
    assert "is not a function name" in up.command("invoke", "a/b", "--input", "X=[1, 2]", code=1)
    assert "triple takes at most 8" in up.command("invoke", "triple", "--input", f"X={[[1, 2]] * 9}", code=1)


@pytest.mark.flow
@pytest.mark.timeout(300)
def test_without_the_token_nothing_moves_no_log_is_read_and_how_to_set_it_is_said(up: Up) -> None:
    for arguments in (("tag", "double", "live", "1"), ("logs", "double")):
        done = run(*arguments, DESPINA_URL=up.url)

        assert 1 == done.returncode
        assert "set DESPINA_ADMIN_TOKEN to the server's token" in done.stderr


@pytest.mark.flow
@pytest.mark.timeout(300)
def test_no_argument_of_a_process_holds_a_token(up: Up) -> None:
    pids = mentioning(str(up.data))
    arguments = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]

    assert {b"workers.node.main", b"gateway.main", b"workers.fleet.controller"} <= {
        argument for line in arguments for argument in line.split(b"\0")
    }
    assert not [line for line in arguments if b"token" in line or TOKEN.encode() in line]


@pytest.mark.flow
@pytest.mark.timeout(300)
def test_down_stops_it_and_leaves_no_process(up: Up) -> None:
    mark = str(up.data)
    before = mentioning(mark) - {up.process.pid}

    assert before

    done = run("down", "--data", str(up.data))

    assert 0 == done.returncode, done.stderr
    assert 0 == up.process.wait(10)
    assert set() == mentioning(mark)
    assert not any(alive(pid) for pid in before)


def _broken(root: Path) -> Path:
    path = bundle(root, "broken", 1)
    model = path / "1" / "model.py"
    model.write_text(f"{model.read_text()}\n    def initialize(self, args):\n        raise ValueError('no weights')\n")
    return path
