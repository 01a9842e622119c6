from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from functions.errors import ModelFailed, NotFound
from functions.protocol.values import Request, Response
from functions.python_api.errors import TritonModelException
from functions.python_api.module import make_module
from functions.python_api.request import ASYNC_CALLS, InferenceRequest, incoming
from functions.python_api.tensor import Tensor, wrap

T = Tensor("I", np.array([[1.0]], np.float32))


def module(answer: Response | None = None, seen: list[Any] | None = None, **options: Any) -> ModuleType:
    def call(request: Request, callee: str, version: int) -> list[Response]:
        if seen is not None:
            seen.append((request, callee, version))
        return [answer or Response(dict(request.inputs), dict(request.dtypes))]

    return make_module(call, "/m/1", **options)


def build(kind: type[InferenceRequest], **more: Any) -> InferenceRequest:
    return kind(**{"inputs": [T], "requested_output_names": ["O"], "model_name": "callee", **more})


def test_an_incoming_request_shows_what_the_caller_sent() -> None:
    request = Request(
        {"I": np.zeros((1, 2), np.uint16)},
        ("O", "P"),
        "r1",
        {"k": 1},
        {"I": "BF16"},
        correlation_id="s",
        flags=1,
        timeout_us=9,
        cancelled=lambda: True,
    )
    seen = incoming(module().InferenceRequest, request, "m", 3)

    assert ("r1", "s", 1, 9) == (seen.request_id(), seen.correlation_id(), seen.flags(), seen.timeout())
    assert (["O", "P"], {"k": 1}) == (seen.requested_output_names(), json.loads(seen.parameters()))
    assert [("I", 14)] == [(tensor.name(), tensor.triton_dtype()) for tensor in seen.inputs()]
    assert seen.inputs() is seen.inputs()
    assert (True, "m", 3, None) == (seen.is_cancelled(), seen.model_name(), seen.model_version(), seen.trace().get_context())


def test_a_call_carries_all_that_its_author_set() -> None:
    seen: list[Any] = []
    request = build(
        module(seen=seen).InferenceRequest, request_id="r", correlation_id=5, model_version=2, flags=1, timeout=7, parameters={"a": True}
    )
    request.set_flags(3)
    response = request.exec()
    ((sent, callee, version),) = seen

    assert ("callee", 2) == (callee, version)
    assert ("r", 5, 3, 7, {"a": True}, ("O",)) == (
        sent.id,
        sent.correlation_id,
        sent.flags,
        sent.timeout_us,
        sent.parameters,
        sent.outputs,
    )
    assert {"I": "FP32"} == sent.dtypes
    assert sent.inputs["I"] is T.as_numpy()
    assert not response.has_error()
    assert response.output_tensors()[0].as_numpy() is T.as_numpy()


def test_numpys_integers_are_integers() -> None:
    request = build(
        module().InferenceRequest, model_version=np.int64(2), flags=np.uint8(1), timeout=np.int32(5), correlation_id=np.uint64(9)
    )

    assert (2, 1, 5, 9) == (request.model_version(), request.flags(), request.timeout(), request.correlation_id())


def test_strings_reach_the_called_model_as_bytes() -> None:
    seen: list[Any] = []
    build(module(seen=seen).InferenceRequest, inputs=[Tensor("I", np.array(["é"], object))]).exec()

    assert ["é".encode()] == seen[0][0].inputs["I"].tolist()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ModelFailed("boom"), "Model callee - Error when running inference: boom"),
        (NotFound("whatever"), "Failed for execute the inference request. Model 'callee' is not ready."),
    ],
)
def test_what_goes_wrong_in_the_called_model_is_in_the_response(error: Any, text: str) -> None:
    response = build(module(Response(error=error)).InferenceRequest).exec()

    assert response.has_error()
    assert (text, response.error().INTERNAL) == (response.error().message(), response.error().code())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"inputs": None}, TypeError, "incompatible constructor arguments"),
        ({"requested_output_names": None}, TypeError, "incompatible constructor arguments"),
        ({"model_name": None}, TypeError, "incompatible constructor arguments"),
        ({"inputs": [np.zeros(1)]}, TypeError, "inputs must be Tensor, got ndarray"),
        ({"model_version": "1"}, TypeError, "model_version must be int, got str"),
        ({"flags": 1.5}, TypeError, "flags must be int, got float"),
        ({"requested_output_names": "O"}, TypeError, "requested_output_names must be a list of str"),
        ({"requested_output_names": [1]}, TypeError, "requested_output_names must be str, got int"),
        ({"correlation_id": 1.5}, TypeError, "Correlation ID must be integer or string"),
        ({"preferred_memory": 1}, TypeError, "preferred_memory must be PreferredMemory or NoneType"),
        ({"trace": "x"}, TypeError, "trace must be InferenceTrace"),
        ({"inputs": [T, T]}, TritonModelException, "input 'I' already exists in request"),
        (
            {"parameters": {"a": 1.5}},
            TritonModelException,
            "Expect parameters values to have type bool/int/str, found type <class 'float'>",
        ),
        ({"parameters": {1: 1}}, TritonModelException, "Expect parameters keys to have type str"),
        ({"parameters": [1]}, TypeError, "parameters must be a dict or None"),
    ],
)
def test_a_request_that_cannot_be_is_refused_where_it_is_built(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build(module().InferenceRequest, **changes)


async def test_calls_are_possible_only_while_the_bundle_executes() -> None:
    request = build(module(executing=lambda: False).InferenceRequest)

    with pytest.raises(TritonModelException, match="BLS is only supported during the 'execute' function"):
        request.exec()
    with pytest.raises(TritonModelException, match="BLS is only supported during the 'execute' function"):
        await request.async_exec()


async def test_the_shared_class_can_call_nothing() -> None:
    with pytest.raises(TritonModelException, match="BLS is only supported"):
        build(InferenceRequest).exec()


async def test_gathered_calls_overlap() -> None:
    """Each call waits until all of them are running: one after the other they would never meet."""
    meeting = threading.Barrier(4, timeout=10)

    def call(request: Request, _callee: str, _version: int) -> list[Response]:
        meeting.wait()
        return [Response(dict(request.inputs), dict(request.dtypes))]

    kind = make_module(call, "/m/1").InferenceRequest
    responses = await asyncio.gather(*(build(kind).async_exec() for _ in range(4)))

    assert [False] * 4 == [response.has_error() for response in responses]


async def test_async_calls_are_bounded() -> None:
    running = peak = 0
    lock = threading.Lock()
    full = threading.Event()

    def call(_request: Request, _callee: str, _version: int) -> list[Response]:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
            if running == ASYNC_CALLS:
                full.set()
        assert full.wait(10)
        with lock:
            running -= 1
        return [Response()]

    kind = make_module(call, "/m/1").InferenceRequest
    await asyncio.gather(*(build(kind).async_exec() for _ in range(ASYNC_CALLS * 2)))

    assert ASYNC_CALLS == peak


async def test_a_bundle_that_calls_itself_does_not_wait_for_its_own_threads() -> None:
    """More outer calls than threads, each making an inner one: were the inner ones to wait for a thread, none would ever be free."""

    def call(request: Request, _callee: str, _version: int) -> list[Response]:
        if request.id == "outer":
            asyncio.run(inner().async_exec())
        return [Response()]

    kind = make_module(call, "/m/1").InferenceRequest

    def inner() -> InferenceRequest:
        return build(kind, request_id="inner")

    outer = [build(kind, request_id="outer").async_exec() for _ in range(ASYNC_CALLS + 4)]
    responses = await asyncio.wait_for(asyncio.gather(*outer), timeout=20)

    assert ASYNC_CALLS + 4 == len(responses)


async def test_an_async_call_sees_the_context_of_its_author() -> None:
    deadline: contextvars.ContextVar[float] = contextvars.ContextVar("deadline")
    seen: list[float] = []

    def call(_request: Request, _callee: str, _version: int) -> list[Response]:
        seen.append(deadline.get())
        return [Response()]

    deadline.set(5.0)
    await build(make_module(call, "/m/1").InferenceRequest).async_exec()

    assert [5.0] == seen


async def test_what_this_release_does_not_offer_says_so() -> None:
    request = build(module().InferenceRequest)

    with pytest.raises(TritonModelException, match=r"InferenceRequest\.get_response_sender is not offered in this release"):
        request.get_response_sender()
    with pytest.raises(TritonModelException, match=r"exec\(decoupled=True\) is not offered"):
        request.exec(decoupled=True)
    with pytest.raises(TritonModelException, match=r"async_exec\(decoupled=True\) is not offered"):
        await request.async_exec(decoupled=True)
    with pytest.raises(TritonModelException, match="set_release_flags is not offered"):
        request.set_release_flags(2)


def test_a_wrapped_output_keeps_its_type() -> None:
    answer = Response({"O": np.zeros(1, np.uint16)}, {"O": "BF16"})
    tensor = build(module(answer).InferenceRequest).exec().output_tensors()[0]

    assert wrap("O", answer.outputs["O"], "BF16").triton_dtype() == tensor.triton_dtype()
