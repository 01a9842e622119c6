"""Many requests as one batch and back: what every native backend does around its library's call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from functions.errors import ModelFailed
from functions.protocol.values import Request, Response


def join(requests: Sequence[Request]) -> tuple[dict[str, np.ndarray], list[int]]:
    """The inputs of ``requests`` one after another, and the rows of each. They have the same names, and the same shapes but for
    the batch dimension."""
    if len(requests) == 1:
        inputs = requests[0].inputs
        return inputs, [requests[0].rows]
    inputs = {name: np.concatenate([request.inputs[name] for request in requests]) for name in requests[0].inputs}
    return inputs, [request.rows for request in requests]


def split(model: str, outputs: Mapping[str, np.ndarray], rows: Sequence[int], dtypes: Mapping[str, str]) -> list[Response]:
    """One response for each of ``rows``. Raises ModelFailed when the model did not answer as many rows as it was asked."""
    if len(rows) == 1:
        return [Response(dict(outputs), {name: dtypes[name] for name in outputs})]
    total = sum(rows)
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != total:
            raise ModelFailed(
                f"output '{name}' of '{model}' has shape {list(array.shape)} for a batch of {total} rows; "
                f"its first dimension must be the batch"
            )
    responses = []
    start = 0
    for count in rows:
        part = {name: array[start : start + count] for name, array in outputs.items()}
        responses.append(Response(part, {name: dtypes[name] for name in part}))
        start += count
    return responses
