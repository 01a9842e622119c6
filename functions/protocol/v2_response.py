"""Answers → KServe v2 response bodies: JSON in Triton's key order, then the binary outputs in the order of their heads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from functions.config.spec import ModelConfig
from functions.protocol.calls import DecodedCall, Encoded
from functions.protocol.classification import Labels, classify
from functions.protocol.compression import compress
from functions.protocol.frames import NO_HEADER, Flag
from functions.protocol.v2_data import to_json
from functions.protocol.v2_tensor import to_bytes
from functions.protocol.values import Response
from functions.tensors import protocol_dtype

_BINARY = int(Flag.BINARY)


class Encoder:
    """For one version of one model."""

    def __init__(self, config: ModelConfig, version: int, labels: Labels) -> None:
        self._batched = config.max_batch_size > 0
        self._labels = labels
        self._model = f'"model_name":{json.dumps(config.name)},"model_version":"{version}"'

    def encode(self, call: DecodedCall, response: Response) -> Encoded:
        if response.error is not None:
            raise response.error
        heads: list[str] = []
        tails: list[bytes] = []
        for name, array in response.outputs.items():
            if name not in call.request.outputs:
                continue
            datatype = response.dtypes.get(name) or protocol_dtype(array.dtype)
            binary, classes = call.wanted.get(name, call.default)
            if classes:
                array = classify(array, datatype, classes, self._batched, self._labels.get(name, ()))
                datatype = "BYTES"
            if binary:
                tail = to_bytes(array, datatype, name)
                tails.append(tail)
                heads.append(f'{_head(name, datatype, array.shape)},"parameters":{{"binary_data_size":{len(tail)}}}}}')
            else:
                heads.append(f'{_head(name, datatype, array.shape)},"data":{_dumps(to_json(array, datatype, name))}}}')
        return self._body(call, response, heads, tails)

    def _body(self, call: DecodedCall, response: Response, heads: Sequence[str], tails: Sequence[bytes]) -> Encoded:
        id = f'"id":{_dumps(call.request.id)},' if call.request.id else ""
        parameters = f',"parameters":{_dumps(response.parameters)}' if response.parameters else ""
        header = f'{{{id}{self._model}{parameters},"outputs":[{",".join(heads)}]}}'.encode()
        binary = any(tails)
        parts, compressed = [header, *tails], 0
        if call.accept:
            parts, compressed = compress(parts, call.accept)
        # Triton's rule: outputs without a single byte make no binary part, and the reply stays JSON.
        return Encoded(parts, len(header) if binary else NO_HEADER, compressed | (_BINARY if binary else 0))


@lru_cache(maxsize=4096)
def _head(name: str, datatype: str, shape: tuple[int, ...]) -> str:
    return f'{{"name":{_dumps(name)},"datatype":"{datatype}","shape":[{",".join(map(str, shape))}]'


_dumps = json.JSONEncoder(separators=(",", ":")).encode
