"""InferenceRequest: what execute receives, and what an author builds to call another model."""

from __future__ import annotations

import asyncio
import contextvars
import json
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from functions.protocol.values import Request, Response
from functions.python_api.absent import DECOUPLED, refuse
from functions.python_api.errors import TritonModelException
from functions.python_api.memory import PreferredMemory
from functions.python_api.parameters import checked
from functions.python_api.response import InferenceResponse, answered
from functions.python_api.tensor import Tensor, unwrap, wrap
from functions.python_api.trace import InferenceTrace

Call = Callable[[Request, str, int], Sequence[Response]]
"""``call(request, callee, version)``: see ``workers.backends.base.Member.call``."""
ASYNC_CALLS = 16
"""Most calls that one bundle has running through ``async_exec``; further ones wait for a thread."""


class Bound:
    """How the requests of one bundle reach other models: by its own lock, and only while it executes."""

    def __init__(self, call: Call, executing: Callable[[], bool]) -> None:
        self.call, self.executing = call, executing
        self._threads: ThreadPoolExecutor | None = None
        self._here = threading.local()

    @property
    def threads(self) -> ThreadPoolExecutor:
        """Made at the first use: a process forked earlier would inherit a pool without its threads."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(ASYNC_CALLS, "async_exec", initializer=self._mark)
        return self._threads

    @property
    def nested(self) -> bool:
        """Whether this thread is one of ``threads``: a bundle that calls itself must not wait there for another of them."""
        return getattr(self._here, "marked", False)

    def _mark(self) -> None:
        self._here.marked = True


class InferenceRequest:
    """The shared base; each bundle has a subclass that carries its ``Bound``."""

    __slots__ = ("_inputs", "_model_name", "_model_version", "_request")
    _bound: ClassVar[Bound | None] = None

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] | None = None,
        requested_output_names: Sequence[str] | None = None,
        model_name: str | None = None,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """A call to ``model_name``. The batch dimension is the caller's; ``requested_output_names`` [] = all; ``timeout`` in
        microseconds. Raises TypeError for a missing or mistyped argument, TritonModelException for a value that cannot be."""
        if inputs is None or requested_output_names is None or model_name is None:
            raise TypeError(
                "__init__(): incompatible constructor arguments: InferenceRequest needs inputs, requested_output_names and model_name"
            )
        _typed("request_id", request_id, str)
        _typed("model_name", model_name, str)
        if isinstance(requested_output_names, str):
            raise TypeError("__init__(): incompatible constructor arguments: requested_output_names must be a list of str, got a str")
        for name in requested_output_names:
            _typed("requested_output_names", name, str)
        if not isinstance(correlation_id, (int, str, np.integer)):
            raise TypeError("Correlation ID must be integer or string")
        _typed("preferred_memory", preferred_memory, PreferredMemory, type(None))
        _typed("trace", trace, InferenceTrace, type(None))
        self._inputs: list[Tensor] | None = list(inputs)
        self._model_name, self._model_version = model_name, _whole("model_version", model_version)
        arrays, datatypes = {}, {}
        for tensor in self._inputs:
            _typed("inputs", tensor, Tensor)
            if tensor._name in arrays:
                raise TritonModelException(f"input '{tensor._name}' already exists in request")
            arrays[tensor._name], datatypes[tensor._name] = unwrap(tensor)
        self._request = Request(
            arrays,
            tuple(requested_output_names),
            request_id,
            checked(parameters),
            datatypes,
            correlation_id=correlation_id if isinstance(correlation_id, str) else int(correlation_id),
            flags=_whole("flags", flags),
            timeout_us=_whole("timeout", timeout),
        )

    def inputs(self) -> list[Tensor]:
        if self._inputs is None:
            datatypes = self._request.dtypes
            self._inputs = [wrap(name, array, datatypes[name]) for name, array in self._request.inputs.items()]
        return self._inputs

    def request_id(self) -> str:
        return self._request.id

    def correlation_id(self) -> int | str:
        return self._request.correlation_id

    def flags(self) -> int:
        return self._request.flags

    def set_flags(self, flags: int) -> None:
        self._request.flags = flags

    def timeout(self) -> int:
        """Microseconds, 0 = none."""
        return self._request.timeout_us

    def parameters(self) -> str:
        """The caller's own, as JSON text."""
        return json.dumps(self._request.parameters)

    def requested_output_names(self) -> list[str]:
        """Those the caller listed; all when it listed none."""
        return list(self._request.outputs)

    def model_name(self) -> str:
        return self._model_name

    def model_version(self) -> int:
        return self._model_version

    def is_cancelled(self) -> bool:
        """Whether the caller has gone away. Never blocks."""
        return self._request.cancelled()

    def trace(self) -> InferenceTrace:
        return InferenceTrace()

    def get_response_sender(self) -> Any:
        refuse("InferenceRequest.get_response_sender", DECOUPLED)

    def set_release_flags(self, _flags: int) -> None:
        refuse("InferenceRequest.set_release_flags", "requests are released when execute returns; there are no iterative sequences")

    def exec(self, decoupled: bool = False) -> InferenceResponse:
        """Runs the call and waits for its answer; from any thread, but only while the bundle executes. What goes wrong in the
        called model is in the response. Raises TritonModelException outside execute."""
        if decoupled:
            refuse("InferenceRequest.exec(decoupled=True)", DECOUPLED)
        bound = self._bound
        if bound is None or not bound.executing():
            raise TritonModelException("BLS is only supported during the 'execute' function.")
        (response,) = bound.call(self._request, self._model_name, self._model_version)
        return answered(response, self._model_name)

    async def async_exec(self, decoupled: bool = False) -> InferenceResponse:
        """``exec`` as a coroutine: gathered calls overlap, at most ASYNC_CALLS at a time."""
        if decoupled:
            refuse("InferenceRequest.async_exec(decoupled=True)", DECOUPLED)
        bound = self._bound
        if bound is None or not bound.executing():
            raise TritonModelException("BLS is only supported during the 'execute' function.")
        if bound.nested:
            return self.exec()
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(bound.threads, context.run, self.exec)


def incoming(kind: type[InferenceRequest], request: Request, model_name: str, model_version: int) -> InferenceRequest:
    """A request for execute, of its bundle's ``kind``: no check, no copy; its tensors are made when they are asked for."""
    made = kind.__new__(kind)
    made._request, made._inputs, made._model_name, made._model_version = request, None, model_name, model_version
    return made


def _typed(name: str, value: Any, *kinds: type) -> None:
    if not isinstance(value, kinds):
        raise _mistyped(name, " or ".join(kind.__name__ for kind in kinds), value)


def _whole(name: str, value: Any) -> int:
    """Authors hand over numpy's integers too."""
    try:
        return operator.index(value)
    except TypeError:
        raise _mistyped(name, "int", value) from None


def _mistyped(name: str, kind: str, value: Any) -> TypeError:
    return TypeError(f"__init__(): incompatible constructor arguments: {name} must be {kind}, got {type(value).__name__}")
