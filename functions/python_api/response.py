"""InferenceResponse: what execute returns for each request, and what a call to another model answers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from functions.errors import NotFound
from functions.protocol.values import Response
from functions.python_api.errors import TritonError, TritonModelException, failure
from functions.python_api.parameters import checked
from functions.python_api.tensor import Tensor, unwrap, wrap


class InferenceResponse:
    """Output tensors, or an error for this request alone."""

    __slots__ = ("_error", "_parameters", "_tensors")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        tensors = list(output_tensors)
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"InferenceResponse(output_tensors=…) takes a list of Tensor, found {type(tensor)}")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"InferenceResponse(error=…) takes a TritonError or None, got {type(error)}")
        self._tensors, self._error = tensors, error
        self._parameters: dict[str, Any] = checked(parameters) if parameters else {}

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def parameters(self) -> str:
        """As JSON text."""
        return json.dumps(self._parameters)


def answer(response: InferenceResponse, outputs: Collection[str]) -> Response:
    """What an author answered, as the platform carries it: only ``outputs``, the names asked for, in the author's order; of
    two tensors with one name the later. Raises TritonModelException for a string tensor that cannot be encoded."""
    if response._error is not None:
        return Response(parameters=response._parameters, error=failure(response._error))
    arrays, datatypes = {}, {}
    for tensor in response._tensors:
        name = tensor._name
        if name in outputs:
            arrays[name], datatypes[name] = unwrap(tensor)
    return Response(arrays, datatypes, response._parameters)


def answered(response: Response, model: str) -> InferenceResponse:
    """What a called model answered, as its caller reads it. Errors are Triton's texts with its code, INTERNAL."""
    error = response.error
    if isinstance(error, NotFound):
        return InferenceResponse(error=TritonError(f"Failed for execute the inference request. Model '{model}' is not ready."))
    if error is not None:
        return InferenceResponse(error=TritonError(f"Model {model} - Error when running inference: {error.message}"))
    made = InferenceResponse()
    made._tensors = [wrap(name, array, response.dtypes[name]) for name, array in response.outputs.items()]
    made._parameters = response.parameters
    return made


def check_returned(returned: Any, count: int, method: str = "execute") -> list[InferenceResponse]:
    """What execute returned for ``count`` requests, if it is a list of that many responses. Raises TritonModelException with Triton's
    texts, and one for None in a slot, which Triton never answers."""
    if type(returned) is not list:
        raise TritonModelException(f"Expected a list in the {method} return, found type '{type(returned)}'.")
    if len(returned) != count:
        raise TritonModelException(
            f"Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{count}, and InferenceResponse(s) size is:{len(returned)}\n"
        )
    for response in returned:
        if not isinstance(response, InferenceResponse):
            raise TritonModelException(
                f"Expected an 'InferenceResponse' object in the {method} function return list, found type '{type(response)}'."
            )
    return returned
