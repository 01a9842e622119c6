"""Runs the example bundles with nothing of the platform: a Triton in eighty lines, for the surface that they use.

Says what the bundles themselves promise, so that a failure on the platform can be told from a failure of a bundle.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime

from functions.config.text import parse


class Failure(Exception):
    """What a model answered instead of outputs."""


class Driver:
    """Calls models, one call at a time. Of a name that lies in several repositories, the first one's is taken."""

    def __init__(self, *repositories: Path) -> None:
        self.repositories = repositories
        self.called: list[str] = []
        """Every model that ran, in order."""
        self._loaded: dict[str, Any] = {}

    def call(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All outputs of one call. Raises Failure."""
        self.called.append(name)
        config = self._config(name)
        if config.get("platform") == "ensemble":
            return self._ensemble(config, inputs)
        if config.get("platform") == "onnxruntime_onnx":
            return self._onnx(name, config, inputs)
        return self._python(name, inputs)

    def _ensemble(self, config: dict[str, Any], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors, waiting = dict(inputs), list(config["ensemble_scheduling"]["step"])
        while waiting:
            step = next(step for step in waiting if set(step["input_map"].values()) <= set(tensors))
            waiting.remove(step)
            answer = self.call(step["model_name"], {name: tensors[tensor] for name, tensor in step["input_map"].items()})
            tensors.update({tensor: answer[name] for name, tensor in step["output_map"].items()})
        return {output["name"]: tensors[output["name"]] for output in config["output"]}

    def _onnx(self, name: str, config: dict[str, Any], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = self._loaded.get(name) or onnxruntime.InferenceSession(str(self._directory(name) / "1/model.onnx"))
        self._loaded[name] = session
        names = [output["name"] for output in config["output"]]
        answer = dict(zip(names, session.run(names, dict(inputs)), strict=True))
        for output in config["output"]:
            if "reshape" in output:
                answer[output["name"]] = answer[output["name"]].reshape(-1, *map(int, output["dims"]))
            if output["data_type"] == "TYPE_STRING":
                answer[output["name"]] = np.vectorize(str.encode, otypes=[object])(answer[output["name"]])
        return answer

    def _python(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        (answer,) = self.batch(name, [inputs])
        return answer

    def batch(self, name: str, batch: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """One batch of several requests to a Python model. Raises Failure."""
        model = self._loaded.get(name)
        if model is None:
            model = self._loaded[name] = self.module(name).TritonPythonModel()
            if hasattr(model, "initialize"):
                model.initialize({"model_config": json.dumps(self._config(name))})
        responses = model.execute([Request(self, "", inputs, []) for inputs in batch])
        for response in responses:
            if response.has_error():
                raise Failure(response.error().message())
        return [{tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()} for response in responses]

    def _directory(self, name: str) -> Path:
        return next(repository / name for repository in self.repositories if (repository / name).is_dir())

    def _config(self, name: str) -> dict[str, Any]:
        return parse((self._directory(name) / "config.pbtxt").read_text())

    def module(self, name: str) -> ModuleType:
        """The bundle's model.py, imported anew."""
        spec = importlib.util.spec_from_file_location(f"example_{name}", self._directory(name) / "1/model.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["triton_python_backend_utils"] = self._utils()
        try:
            spec.loader.exec_module(module)
        finally:
            del sys.modules["triton_python_backend_utils"]
        return module

    def _utils(self) -> ModuleType:
        """``triton_python_backend_utils`` as far as the examples use it."""
        utils = ModuleType("triton_python_backend_utils")
        utils.Tensor, utils.InferenceResponse, utils.TritonError = Tensor, Response, Error  # type: ignore[attr-defined]
        utils.TritonModelException = Failure  # type: ignore[attr-defined]
        utils.InferenceRequest = lambda model_name, inputs, requested_output_names: Request(  # type: ignore[attr-defined]
            self, model_name, {tensor.name(): tensor.as_numpy() for tensor in inputs}, requested_output_names
        )
        utils.get_input_tensor_by_name = lambda request, name: Tensor(name, request.inputs[name])  # type: ignore[attr-defined]
        utils.get_output_tensor_by_name = lambda response, name: next(  # type: ignore[attr-defined]
            (tensor for tensor in response.output_tensors() if tensor.name() == name), None
        )
        return utils


class Tensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        assert isinstance(array, np.ndarray), f"{name} is a {type(array)}"
        self.name, self.as_numpy = lambda: name, lambda: array


class Error:
    INVALID_ARG = 3

    def __init__(self, message: str, code: int = 1) -> None:
        self.message, self.code = lambda: message, lambda: code


class Response:
    def __init__(self, output_tensors: list[Tensor] | None = None, error: Error | None = None) -> None:
        self.output_tensors, self.error, self.has_error = lambda: output_tensors or [], lambda: error, lambda: error is not None


class Request(SimpleNamespace):
    def __init__(self, driver: Driver, model_name: str, inputs: Mapping[str, np.ndarray], outputs: list[str]) -> None:
        super().__init__(driver=driver, model_name=model_name, inputs=inputs, outputs=outputs)

    def exec(self) -> Response:
        try:
            answer = self.driver.call(self.model_name, self.inputs)
        except Failure as failure:
            return Response(error=Error(str(failure)))
        return Response([Tensor(name, answer[name]) for name in self.outputs])
