"""Batching and instances of a configuration, with Triton's defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from functions.errors import BundleRefused

MAX_INSTANCES = 256
"""Largest count of one instance group: each Python instance is a process."""

_PLAIN_POLICY = {"timeout_action": "REJECT", "default_timeout_microseconds": 0, "allow_timeout_override": False, "max_queue_size": 0}
LATER = "remove it; it is not available in this release"


def complete_batching(config: Mapping[str, Any], warnings: list[str]) -> None:
    """Check ``dynamic_batching`` in place and give it its preferred size. Raises BundleRefused."""
    batching, limit = config.get("dynamic_batching"), config["max_batch_size"]
    if batching is None:
        return
    field = "config.pbtxt: dynamic_batching"
    for size in batching["preferred_batch_size"]:
        if not 0 < size <= limit:
            raise BundleRefused(
                f"{size}", field=f"{field}.preferred_batch_size", fix=f"sizes lie between 1 and max_batch_size, which is {limit}"
            )
    _check_priorities(batching, field)
    if limit == 0:
        warnings.append(f"{field}: has no effect, because max_batch_size is 0")
    elif not batching["preferred_batch_size"]:
        batching["preferred_batch_size"] = [limit]


def complete_instances(config: dict[str, Any], name: str, warnings: list[str]) -> None:
    """Check ``instance_group`` in place, and fill in names, kinds and counts. Raises BundleRefused."""
    groups = config["instance_group"]
    if not groups:
        groups.append({**_GROUP, "name": name})
    if all(group["kind"] == "KIND_GPU" for group in groups):
        raise BundleRefused(
            "KIND_GPU, but there is no GPU here",
            field="config.pbtxt: instance_group[0].kind",
            fix="write KIND_CPU or KIND_AUTO, or add such a group",
        )
    for index, group in enumerate(groups):
        _complete_group(group, f"config.pbtxt: instance_group[{index}]", warnings)
        group["name"] = group["name"] or f"{name}_{index}"
        if group["count"] < 1:
            # Triton gives ONNX models on the CPU two instances where a group names no number.
            group["count"] = 2 if config["backend"] == "onnxruntime" and group["kind"] == "KIND_CPU" else 1


_GROUP = {
    "name": "",
    "kind": "KIND_CPU",
    "count": 1,
    "gpus": [],
    "secondary_devices": [],
    "profile": [],
    "passive": False,
    "host_policy": "",
}


def _complete_group(group: dict[str, Any], field: str, warnings: list[str]) -> None:
    if group["count"] > MAX_INSTANCES:
        raise BundleRefused(f"{group['count']} instances", field=f"{field}.count", fix=f"at most {MAX_INSTANCES}")
    if group["kind"] == "KIND_AUTO":
        group["kind"] = "KIND_CPU"
    if group["kind"] == "KIND_GPU":
        warnings.append(f"{field}: kept but not started, because there is no GPU here; the other groups serve")
    elif group["gpus"]:
        raise BundleRefused(f"{group['kind']} with GPUs {group['gpus']}", field=f"{field}.gpus", fix="remove gpus or write KIND_GPU")
    if group["profile"]:
        raise BundleRefused("only TensorRT models have profiles", field=f"{field}.profile", fix="remove it")
    if group["passive"]:
        raise BundleRefused("passive instances are not available", field=f"{field}.passive", fix=LATER)
    if group["host_policy"]:
        raise BundleRefused(f"there is no host policy {group['host_policy']!r}", field=f"{field}.host_policy", fix=LATER)
    limiter = group.get("rate_limiter")
    if limiter and (limiter["resources"] or limiter["priority"]):
        raise BundleRefused("rate limiter resources are not available", field=f"{field}.rate_limiter", fix=LATER)
    if group["secondary_devices"]:
        warnings.append(f"{field}.secondary_devices: kept without effect, because there is no such device here")


def _check_priorities(batching: Mapping[str, Any], field: str) -> None:
    levels, default = batching["priority_levels"], batching["default_priority_level"]
    if levels > 0 and not 1 <= default <= levels:
        raise BundleRefused(
            f"{default}", field=f"{field}.default_priority_level", fix=f"a level from 1 to priority_levels, which is {levels}"
        )
    if levels == 0 and default:
        raise BundleRefused(f"{default} without priority_levels", field=f"{field}.default_priority_level", fix="remove it")
    for level in batching["priority_queue_policy"]:
        if not 1 <= int(level) <= levels:
            raise BundleRefused(
                f"a policy for level {level}",
                field=f"{field}.priority_queue_policy",
                fix=f"levels go from 1 to priority_levels, which is {levels}",
            )
    if levels > 1:
        raise BundleRefused(f"{levels} priority levels", field=f"{field}.priority_levels", fix=LATER)
    policies = {"default_queue_policy": batching.get("default_queue_policy", _PLAIN_POLICY)}
    policies |= {f"priority_queue_policy[{level}]": policy for level, policy in batching["priority_queue_policy"].items()}
    for key, policy in policies.items():
        for setting, plain in _PLAIN_POLICY.items():
            if policy[setting] != plain:
                raise BundleRefused(f"{policy[setting]}", field=f"{field}.{key}.{setting}", fix=LATER)
