"""The module object that one bundle imports as ``triton_python_backend_utils``."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from functions.python_api import absent, dtypes
from functions.python_api.auto_complete import ModelConfig
from functions.python_api.errors import TritonError, TritonModelException
from functions.python_api.logger import Logger, LogLevel
from functions.python_api.memory import MemoryType, PreferredMemory
from functions.python_api.request import Bound, Call, InferenceRequest
from functions.python_api.response import InferenceResponse
from functions.python_api.tensor import Tensor
from functions.python_api.trace import InferenceTrace

NAME = "triton_python_backend_utils"

_SHARED: dict[str, object] = {
    "Tensor": Tensor,
    "InferenceResponse": InferenceResponse,
    "TritonError": TritonError,
    "TritonModelException": TritonModelException,
    "InferenceTrace": InferenceTrace,
    "PreferredMemory": PreferredMemory,
    "MemoryType": MemoryType,
    "TRITONSERVER_MEMORY_CPU": MemoryType.TRITONSERVER_MEMORY_CPU,
    "TRITONSERVER_MEMORY_GPU": MemoryType.TRITONSERVER_MEMORY_GPU,
    "Logger": Logger,
    "LogLevel": LogLevel,
    "ModelConfig": ModelConfig,
    "InferenceResponseSender": absent.InferenceResponseSender,
    "ResponseIterator": absent.ResponseIterator,
    "MetricFamily": absent.MetricFamily,
    "Metric": absent.Metric,
    "load_model": absent.load_model,
    "unload_model": absent.unload_model,
    "TRITON_STRING_TO_NUMPY": dtypes.TRITON_STRING_TO_NUMPY,
    "triton_to_numpy_type": dtypes.triton_to_numpy_type,
    "numpy_to_triton_type": dtypes.numpy_to_triton_type,
    "triton_string_to_numpy": dtypes.triton_string_to_numpy,
    "serialize_byte_tensor": dtypes.serialize_byte_tensor,
    "deserialize_bytes_tensor": dtypes.deserialize_bytes_tensor,
    "get_input_tensor_by_name": dtypes.get_input_tensor_by_name,
    "get_output_tensor_by_name": dtypes.get_output_tensor_by_name,
    "get_input_config_by_name": dtypes.get_input_config_by_name,
    "get_output_config_by_name": dtypes.get_output_config_by_name,
    "using_decoupled_model_transaction_policy": dtypes.using_decoupled_model_transaction_policy,
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START": 1,
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END": 2,
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL": 1,
    "TRITONSERVER_REQUEST_RELEASE_ALL": 1,
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE": 2,
}


def make_module(
    call: Call,
    version_dir: str,
    *,
    executing: Callable[[], bool] = lambda: True,
    ready: Callable[[str, str], bool] | None = None,
) -> ModuleType:
    """A module of its own for one bundle. Everything in it is shared between bundles but three things: InferenceRequest, whose
    ``exec`` goes through ``call`` (``Member.call``: one response a request, errors inside it, from any thread);
    ``get_model_dir()``, which answers ``version_dir``; and ``is_model_ready(name, version)``, which asks ``ready`` (version as
    written, "" = the locked one).

    ``executing`` says whether the bundle is inside ``execute``, where alone it may call. Without ``ready``, asking for
    readiness raises TritonModelException. Requests for execute are made by ``request.incoming(module.InferenceRequest, …)``,
    and its responses read by ``response.check_returned`` and ``response.answer``.
    """

    def get_model_dir() -> str:
        """The version directory of this bundle."""
        return version_dir

    def is_model_ready(model_name: str, model_version: str = "") -> bool:
        """Whether a call to that model would find it."""
        if ready is None:
            absent.refuse(f"is_model_ready({model_name!r})", "it can be asked only where the model runs")
        return ready(model_name, str(model_version))

    module = ModuleType(NAME, "Triton's Python backend API, for one bundle.")
    requests = type("InferenceRequest", (InferenceRequest,), {"__slots__": (), "__module__": NAME, "_bound": Bound(call, executing)})
    vars(module).update(_SHARED, InferenceRequest=requests, get_model_dir=get_model_dir, is_model_ready=is_model_ready)
    return module
