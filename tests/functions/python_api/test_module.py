from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from functions.protocol.values import Request, Response
from functions.python_api.errors import TritonModelException
from functions.python_api.module import make_module
from functions.python_api.request import InferenceRequest

INVENTORY = [
    "Tensor",
    "InferenceRequest",
    "InferenceResponse",
    "TritonError",
    "TritonModelException",
    "InferenceResponseSender",
    "ResponseIterator",
    "PreferredMemory",
    "Logger",
    "MetricFamily",
    "Metric",
    "ModelConfig",
    "InferenceTrace",
    "get_input_tensor_by_name",
    "get_output_tensor_by_name",
    "get_input_config_by_name",
    "get_output_config_by_name",
    "using_decoupled_model_transaction_policy",
    "triton_to_numpy_type",
    "numpy_to_triton_type",
    "triton_string_to_numpy",
    "serialize_byte_tensor",
    "deserialize_bytes_tensor",
    "get_model_dir",
    "is_model_ready",
    "load_model",
    "unload_model",
    "TRITON_STRING_TO_NUMPY",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
]


def no_call(_request: Request, _callee: str, _version: int) -> Sequence[Response]:
    raise AssertionError("nothing here calls")


@pytest.mark.parametrize("name", INVENTORY)
def test_every_name_of_tritons_module_is_there(name: str) -> None:
    assert hasattr(make_module(no_call, "/m/1"), name)


def test_bundles_share_all_classes_but_the_request() -> None:
    first, second = make_module(no_call, "/a/1"), make_module(no_call, "/b/2")

    assert first.Tensor is second.Tensor
    assert first.TritonError is second.TritonError
    assert first.InferenceRequest is not second.InferenceRequest
    assert issubclass(first.InferenceRequest, InferenceRequest)
    assert ("/a/1", "/b/2") == (first.get_model_dir(), second.get_model_dir())
    assert "triton_python_backend_utils" == first.__name__


def test_readiness_is_asked_where_the_model_runs() -> None:
    module = make_module(no_call, "/a/1", ready=lambda name, version: (name, version) == ("m", "2"))

    assert module.is_model_ready("m", "2")
    assert not module.is_model_ready("m")
    with pytest.raises(TritonModelException, match="is_model_ready"):
        make_module(no_call, "/a/1").is_model_ready("m")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("load_model('m')", r"load_model\('m'\) is not offered in this release: .* \[permissions\] repository"),
        ("unload_model('m')", r"unload_model\('m'\) is not offered"),
        ("MetricFamily(name='n', description='d', kind=pb.MetricFamily.COUNTER)", "MetricFamily is not offered.*metrics port"),
        ("InferenceResponseSender()", "InferenceResponseSender is not offered"),
        ("ResponseIterator()", "ResponseIterator is not offered"),
        ("PreferredMemory(pb.TRITONSERVER_MEMORY_GPU)", "outputs lie in CPU memory"),
    ],
)
def test_what_this_release_does_not_offer_says_so(expression: str, text: str) -> None:
    pb = make_module(no_call, "/a/1")

    with pytest.raises(TritonModelException, match=text):
        eval(f"pb.{expression}", {"pb": pb})


def test_cpu_memory_is_what_there_is() -> None:
    pb = make_module(no_call, "/a/1")

    assert pb.PreferredMemory(pb.TRITONSERVER_MEMORY_CPU) is not None


def test_a_replica_needs_only_the_standard_library_and_numpy() -> None:
    program = (
        "import sys, functions.python_api.module, functions.protocol.v2\n"
        "files = {getattr(module, '__file__', None) or '' for module in sys.modules.values()}\n"
        "print(*{path.partition('site-packages/')[2].partition('/')[0] for path in files if 'site-packages/' in path})"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    # An editable installation loads its finder, and setuptools its hack, before any program starts.
    assert {"numpy"} == {package for package in run.stdout.split() if not package.startswith("_")}
