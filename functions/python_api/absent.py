"""What Triton's API has and this release does not. Each name is there, so that an import succeeds, and says so when it is used."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from functions.python_api.errors import TritonModelException


def refuse(name: str, why: str) -> NoReturn:
    """Raises the TritonModelException that names what is not offered."""
    raise TritonModelException(f"{name} is not offered in this release: {why}")


DECOUPLED = "a model answers each request once, in the list that execute returns"
REPOSITORY = "a model may change the repository only with [permissions] repository = true in function.toml, which is not available yet"


class _Absent:
    _why: ClassVar[str]

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        refuse(type(self).__name__, self._why)


class InferenceResponseSender(_Absent):
    _why = DECOUPLED


class ResponseIterator(_Absent):
    _why = DECOUPLED


class MetricFamily(_Absent):
    """Custom metrics. The kinds are there because models name them in the call that is refused."""

    _why = "custom metrics are not collected; the platform's own (nv_inference_*, despina_*) are on the metrics port"
    COUNTER: ClassVar[int] = 0
    GAUGE: ClassVar[int] = 1
    HISTOGRAM: ClassVar[int] = 2


class Metric(_Absent):
    _why = MetricFamily._why


def load_model(model_name: str, config: str = "", files: dict[str, bytes] | None = None) -> NoReturn:  # noqa: ARG001 - Triton's signature
    refuse(f"load_model({model_name!r})", REPOSITORY)


def unload_model(model_name: str, unload_dependents: bool = False) -> NoReturn:  # noqa: ARG001 - Triton's signature
    refuse(f"unload_model({model_name!r})", REPOSITORY)
