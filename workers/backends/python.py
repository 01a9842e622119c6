"""The ``python`` backend: an author's ``TritonPythonModel``, in this very process.

Its module is imported through its bundle's own ``__import__`` (see ``imports``), and its ``triton_python_backend_utils`` is a module of its
own, through which its calls reach other models by its lock. Whatever its code raises, ``SystemExit`` included, fails the
batch and not the replica; only ``os._exit`` and a crash end the process.

A model that calls itself runs nested on the same instance: ``execute`` is entered again, on the same thread, before the outer one returns.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CoroutineType, ModuleType
from typing import Any

from functions.errors import BundleRefused, ModelFailed, StartFailed
from functions.protocol.values import Request, Response
from functions.python_api.auto_complete import ModelConfig
from functions.python_api.errors import TritonModelException
from functions.python_api.module import NAME, make_module
from functions.python_api.request import incoming
from functions.python_api.response import answer, check_returned
from workers.backends.base import Member
from workers.backends.imports import Bundle
from workers.backends.python_source import lacks_method, may_define, parsed
from workers.backends.trace import drop_platform, told

CLASS = "TritonPythonModel"
COMPLETED = ("max_batch_size", "input", "output", "dynamic_batching", "model_transaction_policy")
"""What ``auto_complete_config`` may set; everything else it does to the configuration is dropped, as Triton does."""


class PythonBackend:
    """One ``TritonPythonModel``."""

    spent_ns = (0, 0)

    def __init__(self, member: Member) -> None:
        self._member = member
        self._root = f"{member.model_dir.rstrip('/')}/"
        self._file = f"{member.version_dir}/{member.config.get('default_model_filename') or 'model.py'}"
        self._running: list[Sequence[Request]] = []
        """The batches inside ``execute``: more than one while the model calls itself."""
        self._loop: asyncio.AbstractEventLoop | None = None
        module = make_module(self._call, member.version_dir, executing=lambda: bool(self._running), ready=member.ready)
        try:
            self._request_type = module.InferenceRequest
            self._model = _load(self._file, member, module)()
            self._initialize()
        except BaseException as error:
            raise StartFailed(self._blame(error)) from error
        execute: Callable[[list[Any]], Any] | None = getattr(self._model, "execute", None)
        self._execute = execute

    def execute(self, requests: Sequence[Request]) -> list[Response]:
        started = time.perf_counter_ns()
        member = self._member
        if self._execute is None:
            raise self._failed(f"Python model {self._file} does not implement `execute` method.")
        batch = [incoming(self._request_type, request, member.name, member.version) for request in requests]
        self._running.append(requests)
        prepared = time.perf_counter_ns()
        try:
            returned = self._execute(batch)
            if isinstance(returned, CoroutineType):
                returned = self._await(returned)
        except BaseException as error:
            raise self._failed(self._blame(error)) from error
        finally:
            self._running.pop()
        ran = time.perf_counter_ns()
        try:
            checked = check_returned(returned, len(requests))
            responses = [answer(response, request.outputs) for response, request in zip(checked, requests, strict=True)]
        except TritonModelException as error:
            raise self._failed(str(error)) from error
        self.spent_ns = (prepared - started, time.perf_counter_ns() - ran)
        return responses

    def close(self) -> None:
        finalize = getattr(self._model, "finalize", None)
        if finalize is not None:
            try:
                finalize()
            except BaseException as error:
                self._blame(error)
        if self._loop is not None:
            self._loop.close()

    def _initialize(self) -> None:
        initialize = getattr(self._model, "initialize", None)
        if initialize is None:
            return
        member = self._member
        returned = initialize(
            {
                "model_config": json.dumps(dict(member.config)),
                "model_instance_kind": member.kind,
                "model_instance_name": member.instance,
                "model_instance_device_id": str(member.device_id),
                "model_repository": member.model_dir,
                "model_version": str(member.version),
                "model_name": member.name,
            }
        )
        if isinstance(returned, CoroutineType):
            self._await(returned)

    def _call(self, request: Request, callee: str, version: int) -> Sequence[Response]:
        """A call by the model, on behalf of the batch it runs: as long as somebody of that batch waits, and for nobody else."""
        running = self._running
        if running:
            batch = running[-1]
            deadlines = [each.deadline for each in batch]
            request.deadline = None if None in deadlines else max(each for each in deadlines if each is not None)
            request.hops = max(each.hops for each in batch)
            request.origin = batch[0].origin
            request.cancelled = lambda: all(each.cancelled() for each in batch)
        return self._member.call(request, callee, version)

    def _await(self, coroutine: Any) -> Any:
        """Run an ``async def`` of the model on its own loop, which lives as long as the instance."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        if self._loop.is_running():
            coroutine.close()
            raise TritonModelException(
                "an async execute cannot be run nested in itself: a model that calls itself defines execute without async"
            )
        return self._loop.run_until_complete(coroutine)

    def _blame(self, error: BaseException) -> str:
        """The error as the caller reads it; its author finds the whole trace in the log."""
        traceback.print_exception(type(error), error, drop_platform(error.__traceback__, self._root), file=sys.stderr)
        sys.stderr.flush()
        return told(error, self._root)

    def _failed(self, why: str) -> ModelFailed:
        return ModelFailed(f"Failed to process the request(s) for model '{self._member.instance}', message: {why}")


def inspect(config: dict[str, Any], version_dir: str) -> dict[str, Any]:
    """The configuration as the author's ``auto_complete_config`` completes it. Runs author code; only for the inspection process.

    Raises BundleRefused, with file and line, for a model file that is missing, does not compile, lacks the class, or whose
    ``auto_complete_config`` fails. A class that certainly has none is not imported at all."""
    path = Path(version_dir, config.get("default_model_filename") or "model.py")
    field = f"{path.parent.name}/{path.name}"
    tree = parsed(path, field)
    if not may_define(tree, CLASS):
        raise BundleRefused(f"it does not define the class {CLASS}", field=field, fix=f"define class {CLASS} with initialize and execute")
    if lacks_method(tree, CLASS, "execute"):
        raise BundleRefused(f"the class {CLASS} does not define execute", field=field, fix="define execute(self, requests)")
    if lacks_method(tree, CLASS, "auto_complete_config"):
        return config
    root = f"{path.parent.parent}/"
    member = Member(config.get("name", ""), int(path.parent.name), root.rstrip("/"), version_dir, config, config.get("name", ""))
    module = make_module(member.call, version_dir, executing=lambda: False)
    try:
        complete = getattr(_load(str(path), member, module), "auto_complete_config", None)
        if complete is None:
            return config
        completed = complete(ModelConfig(config))
    except BaseException as error:
        raise BundleRefused(
            f"auto_complete_config failed: {told(error, root)}", field=field, fix="it must load and complete on any machine"
        ) from error
    if not isinstance(completed, ModelConfig):
        raise BundleRefused(
            f"auto_complete_config function in model '{config.get('name', '')}' must return a valid pb.ModelConfig object.",
            field=field,
            fix="return the object it was given",
        )
    result = completed.as_dict()
    return {**config, **{key: result[key] for key in COMPLETED if key in result}}


def _load(file: str, member: Member, module: ModuleType) -> type[Any]:
    """The author's class. Raises whatever importing its file raises."""
    bundle = Bundle([member.version_dir, member.model_dir], {NAME: module})
    loaded = bundle.load(file)
    cls = getattr(loaded, CLASS, None)
    if cls is None:
        raise AttributeError(f"module '{member.version}.{Path(file).stem}' has no attribute '{CLASS}'")
    return cls  # type: ignore[no-any-return]
