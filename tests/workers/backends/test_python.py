"""The python backend alone: the life of a TritonPythonModel, and what inspection finds in its file."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.errors import BundleRefused, ModelFailed, StartFailed
from functions.protocol.values import Request
from workers.backends.base import Member
from workers.backends.python import PythonBackend, inspect

CONFIG = {"name": "m", "backend": "python", "max_batch_size": 4, "input": [], "output": [], "default_model_filename": "model.py"}


def member(folder: Path, source: str, config: dict[str, Any] | None = None, **more: Any) -> Member:
    (folder / "3").mkdir()
    (folder / "3" / "model.py").write_text(textwrap.dedent(source))
    return Member("m", 3, str(folder), str(folder / "3"), config or CONFIG, "m_0", **more)


def request(**inputs: Any) -> Request:
    arrays = {name: np.asarray(value, np.float32) for name, value in inputs.items()}
    return Request(arrays, ("Y",), dtypes=dict.fromkeys(arrays, "FP32"))


def test_initialize_gets_tritons_arguments_all_as_text(tmp_path: Path) -> None:
    made = member(tmp_path, "class TritonPythonModel:\n    def initialize(self, args): import builtins; builtins.seen_args = args\n")
    PythonBackend(made)
    import builtins

    seen = vars(builtins).pop("seen_args")

    assert CONFIG == json.loads(seen.pop("model_config"))
    assert {
        "model_instance_kind": "CPU",
        "model_instance_name": "m_0",
        "model_instance_device_id": "0",
        "model_repository": str(tmp_path),
        "model_version": "3",
        "model_name": "m",
    } == seen


def test_a_model_without_execute_loads_and_fails_each_request(tmp_path: Path) -> None:
    backend = PythonBackend(member(tmp_path, "class TritonPythonModel: ..."))

    with pytest.raises(ModelFailed) as failed:
        backend.execute([request(X=[1])])

    assert failed.value.message == (
        f"Failed to process the request(s) for model 'm_0', message: Python model {tmp_path}/3/model.py does not implement `execute` method."  # noqa: E501
    )


def test_execute_with_a_wrong_signature_says_so(tmp_path: Path) -> None:
    backend = PythonBackend(member(tmp_path, "class TritonPythonModel:\n    def execute(self): ..."))

    with pytest.raises(ModelFailed, match=r"TypeError: TritonPythonModel.execute\(\) takes 1 positional argument but 2 were given"):
        backend.execute([request(X=[1])])


def test_an_async_execute_is_awaited_on_one_loop(tmp_path: Path) -> None:
    source = """
        import asyncio
        import numpy as np
        import triton_python_backend_utils as pb

        class TritonPythonModel:
            loops = set()

            async def execute(self, requests):
                await asyncio.sleep(0)
                self.loops.add(id(asyncio.get_running_loop()))
                return [pb.InferenceResponse([pb.Tensor("Y", np.array([len(self.loops)], np.float32))])]
    """
    backend = PythonBackend(member(tmp_path, source))
    for _ in range(2):
        (answer,) = backend.execute([request(X=[1])])

        assert [1] == answer.outputs["Y"].tolist()
    backend.close()


def test_what_finalize_raises_is_only_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    backend = PythonBackend(member(tmp_path, "class TritonPythonModel:\n    def finalize(self): raise SystemExit('bye')"))

    backend.close()

    assert "SystemExit: bye" in capfd.readouterr().err


def test_the_author_finds_the_trace_in_the_log_without_the_platforms_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    backend = PythonBackend(member(tmp_path, "class TritonPythonModel:\n    def execute(self, requests): raise KeyError('k')"))
    with pytest.raises(ModelFailed):
        backend.execute([request(X=[1])])
    written = capfd.readouterr().err

    assert "KeyError: 'k'" in written
    assert "model.py" in written
    assert "workers/backends" not in written


def test_a_call_carries_the_batchs_latest_deadline_its_depth_and_its_origin(tmp_path: Path) -> None:
    source = """
        import triton_python_backend_utils as pb

        class TritonPythonModel:
            def execute(self, requests):
                pb.InferenceRequest(model_name="other", inputs=[], requested_output_names=[], model_version=2).exec()
                return [pb.InferenceResponse([]) for _ in requests]
    """
    calls: list[tuple[Request, str, int]] = []

    def call(request: Request, callee: str, version: int) -> list[Any]:
        from functions.protocol.values import Response

        calls.append((request, callee, version))
        return [Response()]

    backend = PythonBackend(member(tmp_path, source, call=call))
    first, second = request(X=[1]), request(X=[2])
    first.deadline, second.deadline, second.hops, first.origin = 5.0, 9.0, 3, "link"
    first.cancelled = lambda: True
    backend.execute([first, second])
    ((made, callee, version),) = calls

    assert ("other", 2, 9.0, 3, "link", False) == (callee, version, made.deadline, made.hops, made.origin, made.cancelled())


def refused(folder: Path, source: str) -> BundleRefused:
    made = member(folder, source)
    with pytest.raises(BundleRefused) as caught:
        inspect(dict(made.config), made.version_dir)
    return caught.value


def test_a_file_that_does_not_compile_is_refused_with_its_line(tmp_path: Path) -> None:
    assert "3/model.py:2" == refused(tmp_path, "x = 1\ny = = 2\n").field


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    made = member(tmp_path, "")
    Path(made.version_dir, "model.py").write_bytes(b"\x00\xff")
    with pytest.raises(BundleRefused) as caught:
        inspect(dict(made.config), made.version_dir)

    assert caught.value.field.startswith("3/model.py")


def test_a_file_without_the_class_is_refused(tmp_path: Path) -> None:
    assert "does not define the class TritonPythonModel" in refused(tmp_path, "class Other: ...").reason


def test_a_class_that_certainly_has_no_execute_is_refused(tmp_path: Path) -> None:
    """It loaded, went live, and failed every call."""
    assert "does not define execute" in refused(tmp_path, "class TritonPythonModel:\n    def exceute(self, requests): ...").reason


@pytest.mark.parametrize(
    "source",
    [
        "class Base:\n    def execute(self, requests): ...\nclass TritonPythonModel(Base): ...",
        "class TritonPythonModel: ...\nTritonPythonModel.execute = lambda self, requests: []",
    ],
)
def test_an_execute_that_comes_another_way_is_accepted(tmp_path: Path, source: str) -> None:
    made = member(tmp_path, source)

    assert CONFIG == inspect(dict(made.config), made.version_dir)


def test_a_model_without_auto_complete_config_is_not_imported(tmp_path: Path) -> None:
    made = member(tmp_path, "raise SystemExit('imported')\nclass TritonPythonModel:\n    def execute(self, requests): ...")

    assert CONFIG == inspect(dict(made.config), made.version_dir)


COMPLETES = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        {}
        return config

    def execute(self, requests): ...
"""


def test_auto_complete_config_fills_in_what_it_may_and_nothing_else(tmp_path: Path) -> None:
    body = """config.set_max_batch_size(8)
        config.set_dynamic_batching()
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [2]})
        config.as_dict()["parameters"] = {"mine": {"string_value": "1"}}"""
    made = member(tmp_path, COMPLETES.format(body))

    completed = inspect(dict(made.config), made.version_dir)

    assert 8 == completed["max_batch_size"]
    assert {} == completed["dynamic_batching"]
    assert ["X"] == [tensor["name"] for tensor in completed["input"]]
    assert ["Y"] == [tensor["name"] for tensor in completed["output"]]
    assert "parameters" not in completed


def test_auto_complete_config_that_raises_is_refused_with_its_trace(tmp_path: Path) -> None:
    reason = refused(tmp_path, COMPLETES.format("raise ValueError('cannot')")).reason

    assert "ValueError: cannot" in reason
    assert f"{tmp_path}/3/model.py(5): auto_complete_config" in reason


def test_auto_complete_config_that_exits_is_refused(tmp_path: Path) -> None:
    assert "SystemExit: 1" in refused(tmp_path, COMPLETES.format("import sys; sys.exit(1)")).reason


def test_auto_complete_config_that_returns_another_thing_is_refused(tmp_path: Path) -> None:
    assert "must return a valid pb.ModelConfig object" in refused(tmp_path, COMPLETES.format("return None")).reason


def test_a_class_that_comes_from_elsewhere_is_accepted(tmp_path: Path) -> None:
    made = member(tmp_path, "from beside_me import TritonPythonModel")
    Path(made.version_dir, "beside_me.py").write_text(COMPLETES.format("config.set_max_batch_size(6)"))

    assert 6 == inspect(dict(made.config), made.version_dir)["max_batch_size"]
    assert "beside_me" not in vars(sys.modules["tests"])


def test_a_model_that_cannot_be_made_is_a_start_failed(tmp_path: Path) -> None:
    made = member(tmp_path, "class TritonPythonModel:\n    def __init__(self): raise OSError('no disk')")

    with pytest.raises(StartFailed, match="OSError: no disk"):
        PythonBackend(made)
