"""Bundles are inspected in a real throw-away process, the hostile ones too."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from functions.bundle import Inspected
from functions.errors import BundleRefused, TooLarge
from functions.paths import Limits
from functions.records import content_digest
from tests.workers.node import bundles
from workers.node import census
from workers.node.guard import Guard
from workers.node.inspection import believed, inspect
from workers.node.inspector import Sandbox, Task

Look = Callable[..., Awaitable[Inspected]]


@pytest.fixture
def look(tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Inspect a bundle as function ``echo``; whatever the inspection starts carries the test's token."""
    monkeypatch.setenv(Guard.VARIABLE, token)
    monkeypatch.setenv("DESPINA_ADMIN_TOKEN", "secret")
    (tmp_path / "staging").mkdir()

    async def look(source: Path, limits: Limits | None = None, **sandbox: float) -> Inspected:
        return await inspect(source, "echo", tmp_path / "staging", limits or Limits(), Sandbox(**sandbox))  # type: ignore[arg-type]

    return look


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    return tmp_path / "staging"


async def test_a_directory_is_copied_and_described(look: Look, tmp_path: Path, staging: Path) -> None:
    source = bundles.write(tmp_path / "b", **{"function.toml": "[limits]\ntimeout_s = 5.0\n", "1__weights.bin": "w"})
    found = await look(source)

    assert ["1/model.py", "1/weights.bin", "config.pbtxt", "function.toml"] == list(found.files)
    assert ("echo", "python", "1") == (found.config["name"], found.config["backend"], found.author_dir)
    assert 35.0 == found.manifest["limits"]["kill_s"]
    assert {} == found.calls
    assert staging in found.staging.parents
    assert "w" == (found.staging / "1" / "weights.bin").read_text()


async def test_an_archive_and_its_directory_have_the_same_content(look: Look, tmp_path: Path) -> None:
    source = bundles.write(tmp_path / "b")
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        archive.add(source, "some_folder")
    zipped = Path(shutil.make_archive(str(tmp_path / "z"), "zip", tmp_path, "b"))
    found = [await look(each) for each in (source, tmp_path / "b.tar.gz", zipped)]

    assert 1 == len({content_digest(each.files) for each in found})


async def test_calls_are_found_and_unknown_ones_are_warned_of(look: Look, tmp_path: Path) -> None:
    model = bundles.MODEL + '\n\ndef call(pb_utils):\n    return pb_utils.InferenceRequest(model_name="other")\n'
    found = await look(bundles.write(tmp_path / "b", model))

    assert "source" == found.calls["other"].via
    assert any("other" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("config", "batch"),
    [
        ("", 4),
        ("max_batch_size: 16 dynamic_batching { preferred_batch_size: [8] }", 16),
        (
            'model_warmup [{ name: "w" batch_size: 2 inputs { key: "X" value { data_type: TYPE_FP32 dims: [4] zero_data: true } } }]',
            4,
        ),
    ],
    ids=["nothing", "batch sizes", "warm-up of an input that only the model names"],
)
async def test_an_onnx_model_completes_its_config(look: Look, tmp_path: Path, config: str, batch: int) -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["X"], ["Y"])],
        "g",
        [value("X", onnx.TensorProto.FLOAT, ["n", 4])],
        [value("Y", onnx.TensorProto.FLOAT, ["n", 4])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    (tmp_path / "b" / "1").mkdir(parents=True)
    (tmp_path / "b" / "1" / "model.onnx").write_bytes(model.SerializeToString())
    if config:
        (tmp_path / "b" / "config.pbtxt").write_text(f'backend: "onnxruntime" {config}')
    found = await look(tmp_path / "b")

    assert "onnxruntime" == found.config["backend"]
    assert ["X", [4], batch] == [
        found.config["input"][0]["name"],
        [int(d) for d in found.config["input"][0]["dims"]],
        found.config["max_batch_size"],
    ]


async def test_auto_complete_config_runs_in_a_scrubbed_environment(look: Look, tmp_path: Path) -> None:
    body = """
import os
config.set_max_batch_size(len([name for name in os.environ if name.startswith("DESPINA_A")]) + 7)
config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [2]})
"""
    found = await look(bundles.write(tmp_path / "b", bundles.completing(body), 'backend: "python"'))

    assert 7 == found.config["max_batch_size"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"config": 'backend: "python"\ninput ['}, r"config\.pbtxt:2"),
        ({"config": 'backend: "python"\nwhatever: 1'}, "whatever"),
        ({"config": 'backend: "tensorrt"'}, "tensorrt"),
        ({"config": 'name: "else"\n' + bundles.CONFIG}, "'else' is not the function's name"),
        ({"model": "def ("}, r"1/model\.py"),
        ({"model": "x = 1"}, "TritonPythonModel"),
        ({"function.toml": "[scale]\nmox = 1"}, "mox"),
        ({"config": b"\xff".decode("latin-1")}, r"config\.pbtxt"),
    ],
)
async def test_refusals_name_the_place(look: Look, tmp_path: Path, staging: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(BundleRefused, match=said):
        await look(bundles.write(tmp_path / "b", **files))

    assert [] == list(staging.iterdir())


async def test_a_link_out_of_the_bundle_is_refused(look: Look, tmp_path: Path) -> None:
    source = bundles.write(tmp_path / "b")
    (source / "1" / "passwd").symlink_to("/etc/passwd")

    with pytest.raises(BundleRefused, match="1/passwd"):
        await look(source)


async def test_an_archive_over_the_limit_is_too_large(look: Look, tmp_path: Path, staging: Path) -> None:
    source = bundles.write(tmp_path / "b", **{"1__big": "x" * 100_000})
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        archive.add(source, "b")

    with pytest.raises(TooLarge, match="50000"):
        await look(tmp_path / "b.tar", Limits(total_bytes=50_000))
    assert [] == list(staging.iterdir())


async def test_noise_that_looks_like_an_archive_is_refused(look: Look, tmp_path: Path) -> None:
    for index, magic in enumerate((b"PK\x03\x04", b"\x1f\x8b", b"nothing")):
        path = tmp_path / f"noise-{index}"
        path.write_bytes(magic + os.urandom(3000))
        with pytest.raises(BundleRefused):
            await look(path)


@pytest.mark.parametrize(
    ("body", "sandbox", "said"),
    [
        ("import os\nos.kill(os.getpid(), 11)", {}, "signal SIGSEGV"),
        ("import os\nos._exit(3)", {}, "exit code 3"),
        ("while True: pass", {"cpu_s": 2}, "more than 2 s of processor time"),
        ("import time\ntime.sleep(600)", {"deadline_s": 1.5}, "longer than 1.5 s"),
        ("x = bytearray(4 << 30)", {"memory_bytes": 2 << 30}, "MemoryError|2048 MiB"),
        ("files = [open('/dev/null') for _ in range(9999)]", {"open_files": 64}, "Too many open files|64 files"),
    ],
    ids=["crash", "exit", "processor", "hang", "memory", "files"],
)
async def test_a_limit_that_stops_it_is_named(
    look: Look, tmp_path: Path, staging: Path, body: str, sandbox: dict[str, float], said: str
) -> None:
    with pytest.raises(BundleRefused, match=said):
        await look(bundles.write(tmp_path / "b", bundles.completing(body)), **sandbox)

    assert [] == list(staging.iterdir())


async def test_a_file_over_the_limit_is_named(look: Look, tmp_path: Path) -> None:
    body = "with open('/tmp/despina-big', 'wb') as file: file.truncate(1 << 30)"

    with pytest.raises(BundleRefused, match=r"File too large|over 1048576 bytes"):
        await look(bundles.write(tmp_path / "b", bundles.completing(body)), Limits(total_bytes=1 << 20))
    Path("/tmp/despina-big").unlink(missing_ok=True)


async def test_no_process_that_author_code_started_is_left(look: Look, tmp_path: Path, token: str) -> None:
    body = """
import os, subprocess
subprocess.Popen(["sleep", "599"], start_new_session=True)
subprocess.Popen(["sleep", "598"], start_new_session=True, env={})
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import time
        time.sleep(600)
    os._exit(0)
"""
    await look(bundles.write(tmp_path / "b", bundles.completing(body)))

    assert set() == census.carrying(token) - {os.getpid()}
    assert [] == [
        pid for pid in census.carrying("") if Path(f"/proc/{pid}/cmdline").read_bytes() in (b"sleep\x00599\x00", b"sleep\x00598\x00")
    ]


async def test_a_cancelled_inspection_leaves_nothing(look: Look, tmp_path: Path, staging: Path, token: str) -> None:
    marker = tmp_path / "started"
    body = f"import time\nopen({str(marker)!r}, 'w').close()\ntime.sleep(600)"
    running = asyncio.ensure_future(look(bundles.write(tmp_path / "b", bundles.completing(body))))
    async with asyncio.timeout(20):
        while not marker.exists():
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert set() == census.carrying(token)
    assert [] == list(staging.iterdir())


async def test_author_code_that_answers_in_the_inspections_place_is_not_believed(look: Look, tmp_path: Path) -> None:
    body = """
import os, sys
for name in os.listdir("/proc/self/fd"):
    try:
        os.write(int(name), b'{"inspected": {"files": {"../../x": ["0", -1, 7]}}}\\n')
    except OSError:
        pass
os._exit(0)
"""
    with pytest.raises(BundleRefused, match="nonsense"):
        await look(bundles.write(tmp_path / "b", bundles.completing(body)))


@pytest.mark.parametrize(
    "body",
    [
        "os.remove(path); os.symlink('/etc/passwd', path)",
        "os.remove(path); os.mkfifo(path)",
        "os.remove(path)",
        "open(path, 'a').write('more')",
        "os.rename(os.path.dirname(path), '../moved'); os.symlink('../../moved', os.path.dirname(path))",
    ],
    ids=["link", "pipe", "gone", "longer", "linked-folder"],
)
async def test_author_code_that_changes_the_bundle_while_it_is_inspected_is_refused(look: Look, tmp_path: Path, body: str) -> None:
    model = bundles.completing(f"import os, sys\npath = sys._getframe().f_code.co_filename\n{body}")

    with pytest.raises(BundleRefused, match="changed the bundle while"):
        await look(bundles.write(tmp_path / "b", model))


GOOD = {
    "files": {"config.pbtxt": ["0" * 64, 1, False], "1/model.py": ["1" * 64, 2, False]},
    "config": {"name": "echo", "backend": "python"},
    "manifest": {},
    "author_dir": "1",
    "calls": {},
    "environment": "",
    "warnings": [],
    "staging": "/s/bundle/b",
}


def test_a_plain_answer_is_believed() -> None:
    found = believed(json.dumps({"inspected": GOOD}).encode(), "echo", Path("/s/bundle"), Limits())

    assert 300.0 == found.manifest["limits"]["timeout_s"]
    assert 2 == found.files["1/model.py"].size


@pytest.mark.parametrize(
    "forged",
    [
        {"staging": "/etc"},
        {"staging": "/s/bundle/b/../../../etc"},
        {"staging": "/s/bundle/.."},
        {"files": {"../x": ["0" * 64, 1, False]}},
        {"files": {"/etc/passwd": ["0" * 64, 1, False]}},
        {"files": {"x": ["zz", 1, False]}},
        {"files": {"x": ["0" * 64, -1, False]}},
        {"config": {"name": "echo", "backend": "no_such"}},
        {"config": {"name": "other", "backend": "python"}},
        {"manifest": {"limits": {"queue": -1}}},
        {"manifest": {"surprise": 1}},
        {"author_dir": "../1"},
        {"calls": {"f": {"follow": None, "pinned": None, "shared": False, "via": "source"}}},
        {"calls": {"a/b": {"follow": "live", "pinned": None, "shared": False, "via": "source"}}},
        {"environment": "sha256:0"},
        {"warnings": [1]},
        {"more": 1},
    ],
)
def test_a_forged_answer_is_refused(forged: dict[str, object]) -> None:
    with pytest.raises(BundleRefused):
        believed(json.dumps({"inspected": {**GOOD, **forged}}).encode(), "echo", Path("/s/bundle"), Limits())


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b"null", b'{"refused": {}}', b"\xff", b"[" * 100_000])
def test_nonsense_is_refused(line: bytes) -> None:
    with pytest.raises(BundleRefused, match="nonsense"):
        believed(line, "echo", Path("/s/bundle"), Limits())


def test_a_task_survives_its_command_line(tmp_path: Path) -> None:
    task = Task(tmp_path, "echo", tmp_path / "d", 7, Limits(files=3), Sandbox(cpu_s=2))

    assert task == Task.from_json(task.to_json())
