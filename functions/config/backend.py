"""Which backend a bundle uses, by Triton's rules: its config says so, or the files of its version directory do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from functions.errors import BundleRefused


class Known(NamedTuple):
    """One backend by Triton's names. ``platforms``: the first is what Triton fills in, "" = nothing."""

    backend: str
    platforms: tuple[str, ...]
    artifact: str
    available: bool = False


KNOWN = (
    Known("tensorflow", ("tensorflow_savedmodel", "tensorflow_graphdef"), "model.savedmodel"),
    Known("tensorrt", ("tensorrt_plan",), "model.plan"),
    Known("onnxruntime", ("onnxruntime_onnx",), "model.onnx", available=True),
    Known("openvino", ("",), "model.xml"),
    Known("pytorch", ("pytorch_libtorch", "libtorch"), "model.pt"),
    Known("python", ("", "python"), "model.py", available=True),
    Known("dali", ("",), "model.dali"),
    Known("fil", ("",), "model.json"),
    Known("vllm", ("",), "model.json"),
    Known("tensorrtllm", ("",), "model.json"),
)
"""In the order in which Triton tries them; the last three are only reached by their name."""

_BY_ARTIFACT = KNOWN[:7]
_AVAILABLE = "this release runs the backends " + ", ".join(entry.backend for entry in KNOWN if entry.available) + " and ensembles"


def choose(config: Mapping[str, Any], artifacts: Collection[str], name: str) -> dict[str, Any]:
    """The ``backend``, ``platform`` and ``default_model_filename`` that complete this config. ``artifacts`` are the names in the
    bundle's version directory, asked only where the config names neither backend, platform nor file. Raises BundleRefused for
    contradictions, for backends that this release cannot run, and where nothing tells."""
    backend, platform, file = (config.get(key, "") for key in ("backend", "platform", "default_model_filename"))
    if platform == "ensemble" or "ensemble_scheduling" in config:
        _check_ensemble(config, backend, platform, file)
        return {"backend": "", "platform": "ensemble", "default_model_filename": ""}
    known = _known(backend, platform, file, artifacts, name)
    if platform and platform not in known.platforms:
        raise BundleRefused(
            f"platform {platform!r} does not go with backend {known.backend!r}", field="config.pbtxt: platform", fix="leave platform out"
        )
    if not known.available:
        raise BundleRefused(f"the backend {known.backend!r} is not available", field="config.pbtxt: backend", fix=_AVAILABLE)
    return {"backend": known.backend, "platform": platform or known.platforms[0], "default_model_filename": file or known.artifact}


def _known(backend: str, platform: str, file: str, artifacts: Collection[str], name: str) -> Known:
    if backend:
        for entry in KNOWN:
            if entry.backend == backend:
                return entry
        raise BundleRefused(f"the backend {backend!r} is unknown", field="config.pbtxt: backend", fix=_AVAILABLE)
    if platform:
        for entry in KNOWN:
            if platform in entry.platforms:
                return entry
        raise BundleRefused(f"the platform {platform!r} is unknown", field="config.pbtxt: platform", fix=_AVAILABLE)
    for entry in _BY_ARTIFACT:
        if entry.artifact == file if file else entry.artifact in artifacts:
            return entry
    found = ", ".join(sorted(artifacts)[:8]) or "nothing"
    raise BundleRefused(
        f"nothing tells which backend runs {name!r}: neither backend nor platform is set, and the version directory holds {found}",
        field="config.pbtxt: backend",
        fix=f"write backend: {' or '.join(repr(entry.backend) for entry in KNOWN if entry.available)}, or add model.py or model.onnx",
    )


def _check_ensemble(config: Mapping[str, Any], backend: str, platform: str, file: str) -> None:
    if platform != "ensemble":
        raise BundleRefused(
            f"ensemble_scheduling with platform {platform!r}", field="config.pbtxt: platform", fix='an ensemble has platform: "ensemble"'
        )
    if backend:
        raise BundleRefused(f"an ensemble with backend {backend!r}", field="config.pbtxt: backend", fix="leave backend out")
    if file:
        raise BundleRefused(
            f"an ensemble with the model file {file!r}",
            field="config.pbtxt: default_model_filename",
            fix="leave it out: an ensemble has no file",
        )
    if "ensemble_scheduling" not in config:
        raise BundleRefused(
            "platform ensemble without steps", field="config.pbtxt: ensemble_scheduling", fix="add ensemble_scheduling { step [ … ] }"
        )
