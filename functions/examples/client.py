"""A caller of the public HTTP interface: infers with binary tensors, reads JSON, reads counters. Knows nothing of the platform's inside."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from functions.tensors import decode_bytes, encode_bytes, numpy_dtype, protocol_dtype

HEADER_LENGTH = "Inference-Header-Content-Length"
TIMEOUT_S = 120.0


class CallFailed(Exception):
    """The platform answered an error: status, its code and its message."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One inference: outputs by name, which version answered, and how long the caller waited."""

    outputs: Mapping[str, np.ndarray]
    version: int
    seconds: float


class Client:
    """One connection to one platform. ``with`` closes it; a thread needs its own."""

    def __init__(self, url: str, metrics_url: str) -> None:
        self.metrics_url = metrics_url
        # Tensors compress badly and the network is this machine: httpx's default would ask for gzip.
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False, headers={"Accept-Encoding": "identity"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def infer(self, name: str, inputs: Mapping[str, np.ndarray], version: str = "") -> Answer:
        """Call a function, by default what ``live`` names; ``version`` is a number or a tag. Raises CallFailed."""
        header, tensors = encode(inputs)
        path = f"/v2/models/{name}/versions/{version}/infer" if version else f"/v2/models/{name}/infer"
        began = time.perf_counter()
        reply = self._http.post(path, content=b"".join([header, *tensors]), headers={HEADER_LENGTH: str(len(header))})
        seconds = time.perf_counter() - began
        checked(reply)
        outputs = decode(reply.content, int(reply.headers.get(HEADER_LENGTH, len(reply.content))))
        return Answer(outputs, int(reply.headers["Despina-Version"]), seconds)

    def get(self, path: str) -> Any:
        """A JSON document. Raises CallFailed."""
        return checked(self._http.get(path)).json()

    def counters(self) -> dict[tuple[str, str], float]:
        """(family, model) → value, summed over versions, of all Triton's per-model counters. Raises CallFailed."""
        text = checked(self._http.get(self.metrics_url)).text
        totals: dict[tuple[str, str], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith("nv_inference_") and "model" in sample.labels:
                    key = (sample.name.removesuffix("_total"), sample.labels["model"])  # the parser appends it to every counter
                    totals[key] = totals.get(key, 0.0) + sample.value
        return totals


def checked(reply: httpx.Response) -> httpx.Response:
    """The reply, if it is a good one. Raises CallFailed."""
    if reply.is_success:
        return reply
    code = reply.headers.get("Despina-Error", "no code")
    raise CallFailed(f"{reply.request.method} {reply.request.url.path}: {reply.status_code} ({code}) {reply.text[:500]}")


def encode(inputs: Mapping[str, np.ndarray]) -> tuple[bytes, list[bytes]]:
    """The JSON header and the raw tensors of a request that wants raw tensors back."""
    entries: list[dict[str, Any]] = []
    tensors: list[bytes] = []
    for name, array in inputs.items():
        datatype = protocol_dtype(array.dtype)
        tensors.append(encode_bytes(array) if datatype == "BYTES" else array.tobytes())
        parameters = {"binary_data_size": len(tensors[-1])}
        entries.append({"name": name, "datatype": datatype, "shape": list(array.shape), "parameters": parameters})
    return json.dumps({"inputs": entries, "parameters": {"binary_data_output": True}}).encode(), tensors


def decode(body: bytes, header_length: int) -> dict[str, np.ndarray]:
    """The outputs of a response whose tensors are raw."""
    rest, position = memoryview(body), header_length
    outputs = {}
    for entry in json.loads(body[:header_length])["outputs"]:
        size = entry["parameters"]["binary_data_size"]
        raw, position = rest[position : position + size], position + size
        shape, datatype = entry["shape"], entry["datatype"]
        flat = decode_bytes(raw, math.prod(shape)) if datatype == "BYTES" else np.frombuffer(raw, numpy_dtype(datatype))
        outputs[entry["name"]] = flat.reshape(shape)
    return outputs
