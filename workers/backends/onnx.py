"""The ``onnxruntime`` backend: one session an instance, on the CPU.

One thread and no spinning a session, unless the config says otherwise: a node runs many sessions side by side, and a pool that
spins takes the cores of its neighbours. Triton's ``parameters`` and ``optimization.graph.level`` are honoured; the same
file tells at publish time what a model takes (``inspect``), and the constructor checks again what it was given.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from functions.errors import ModelFailed, StartFailed
from functions.protocol.values import Request, Response
from workers.backends.base import Member
from workers.backends.joining import join, split
from workers.backends.onnx_options import run_options, session_options
from workers.backends.onnx_signature import check, complete, inputs_of, outputs_of

ort.set_default_logger_severity(3)


class OnnxBackend:
    """One session. BYTES tensors cross as ONNX strings, which are UTF-8 text."""

    spent_ns = (0, 0)

    def __init__(self, member: Member) -> None:
        config = member.config
        self._name = member.name
        try:
            self._session = _session(_path(config, member.version_dir), config)
        except Exception as error:
            # onnxruntime raises a dozen types of its own, which have no base but Exception.
            raise StartFailed(f"onnxruntime cannot load '{self._name}': {_text(error)}") from error
        self._run_options = run_options(config)
        self._inputs = inputs_of(self._session)
        self._outputs = outputs_of(self._session)
        problem = check(config, self._inputs, self._outputs)
        if problem is not None:
            raise StartFailed(problem)
        self._dtypes = {port.name: port.datatype for port in self._outputs}
        self._wanted = [entry["name"] for entry in config.get("output", ())]
        self._batching = config.get("max_batch_size", 0) > 0
        self._scalars = [port.name for port in self._inputs if port.shape == ()]
        self._texts = [port.name for port in self._inputs if port.datatype == "BYTES"]

    def execute(self, requests: Sequence[Request]) -> list[Response]:
        if len(requests) > 1 and not self._batching:
            return [response for request in requests for response in self.execute([request])]
        started = time.perf_counter_ns()
        inputs, rows = join(requests)
        feeds = self._feeds(inputs)
        asked = {name for request in requests for name in request.outputs}
        names = [name for name in self._wanted if name in asked]
        prepared = time.perf_counter_ns()
        try:
            results = self._session.run(names, feeds, self._run_options)
        except Exception as error:
            raise ModelFailed(f"onnx runtime error: {_text(error)}") from error
        ran = time.perf_counter_ns()
        responses = split(self._name, self._answers(names, results), rows, self._dtypes)
        self.spent_ns = (prepared - started, time.perf_counter_ns() - ran)
        return responses

    def close(self) -> None:
        del self._session

    def _feeds(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        feeds = dict(inputs)
        for name in self._scalars:
            if name in feeds:
                feeds[name] = feeds[name].reshape(())
        for name in self._texts:
            if name in feeds:
                feeds[name] = _decoded(name, feeds[name])
        return feeds

    def _answers(self, names: Sequence[str], results: Sequence[Any]) -> dict[str, np.ndarray]:
        answers: dict[str, np.ndarray] = {}
        for name, result in zip(names, results, strict=True):
            array = np.asarray(result)
            if self._dtypes[name] == "BYTES":
                array = _encoded(array)
            answers[name] = array.reshape(1) if array.ndim == 0 else array
        return answers


def inspect(config: dict[str, Any], version_dir: str) -> dict[str, Any]:
    """The configuration with what the model itself says about inputs, outputs and batching, by Triton's rules. Only for the
    inspection process. Raises BundleRefused for a file that is no model, and where config and model disagree."""
    return complete(config, _path(config, version_dir), lambda path: _session(path, config, checking=True))


def _session(path: Path, config: Mapping[str, Any], *, checking: bool = False) -> ort.InferenceSession:
    return ort.InferenceSession(str(path), session_options(config, checking=checking), providers=["CPUExecutionProvider"])


def _path(config: Mapping[str, Any], version_dir: str) -> Path:
    """The model file; a directory of that name holds it with its external data."""
    name = config.get("default_model_filename") or "model.onnx"
    path = Path(version_dir, name)
    return path / "model.onnx" if path.is_dir() else path


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _decoded(name: str, array: np.ndarray) -> np.ndarray:
    texts = np.empty(array.size, dtype=np.object_)
    try:
        texts[:] = [element.decode() for element in array.ravel()]
    except UnicodeDecodeError as error:
        raise ModelFailed(f"input '{name}' holds bytes that are not UTF-8, and ONNX strings are text: {error}") from error
    return texts.reshape(array.shape)


def _encoded(array: np.ndarray) -> np.ndarray:
    data = np.empty(array.size, dtype=np.object_)
    data[:] = [element.encode() if isinstance(element, str) else element for element in array.ravel().tolist()]
    return data.reshape(array.shape)
