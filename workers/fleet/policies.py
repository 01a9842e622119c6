"""A version's scaling policy: its manifest, the operator's override of it, and the machines it runs on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from functions.config.spec import ModelConfig
from functions.records import VersionRecord
from workers.fleet.decide import Policy
from workers.process.layout import layout


def scale_of(manifest: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """A version's ``[scale]``, every key of it: what its function's operator says comes before its own manifest."""
    return {**manifest["scale"], **override}


def policy(closure: Sequence[VersionRecord], override: Mapping[str, Any], cores: int) -> Policy:
    """``closure`` is the version and all it reaches, it first; ``override`` is the function's scale, which comes before the manifest's.

    Where neither says, target is lanes × max(1, max_batch_size), what one replica runs at a time, and max is cores ÷ lanes, but at
    least 1 and min.
    """
    root = closure[0]
    scale = scale_of(root.manifest, override)
    lanes = layout({record.ref: record.config for record in closure}).lanes
    most, target = scale["max"], scale["target"]
    least = int(scale["min"]) if most is None else min(int(scale["min"]), int(most))
    return Policy(
        min=least,
        max=max(1, cores // lanes, least) if most is None else int(most),
        target=float(lanes * max(1, ModelConfig.of(root.config).max_batch_size)) if target is None else float(target),
        idle_s=float(scale["idle_s"]),
    )
