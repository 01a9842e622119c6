"""A checked configuration as those who run it see it: frozen, quick to ask, standard library only (it lives in replicas).

``ModelConfig.of`` takes the normalised dictionary (``checks.normalise``, a version record's ``config``, ``args['model_config']``)
and trusts it. Names of data types are the protocol's (``FP32``); -1 in a shape is a size that only a request knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from functions.tensors import config_dtype

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One declared input or output."""

    name: str
    datatype: str
    """Protocol name: ``FP32``, ``BYTES`` …"""
    dims: Shape
    """As the config says it: without the batch dimension."""
    full_shape: Shape
    """What a client sends or gets: ``dims``, with -1 in front when the model batches."""
    model_shape: Shape
    """What the model sees: like ``full_shape``, but of ``reshape`` where there is one."""
    reshape: Shape | None = None
    """The model's own shape of one item; None = the same as ``dims``, () = a scalar an item."""
    optional: bool = False
    label_filename: str = ""
    """Of an output: path in the bundle of a text file with one label a line; "" = none."""


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """How the replica may join requests to batches."""

    preferred: tuple[int, ...] = ()
    """Batch sizes worth sending at once, ascending; empty only where max_batch_size is 0."""
    delay_us: int = 0
    """How long the oldest request may wait for a preferred size, microseconds."""
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """``count`` instances named ``<name>_0`` … ; ``kind`` is KIND_CPU or KIND_MODEL."""

    name: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an ensemble. ``input_map``: the step model's input → ensemble tensor; ``output_map``: its output → ensemble tensor."""

    model_name: str
    model_version: int
    """As written by the author: > 0 pins, -1 and 0 follow a tag. Which version runs is in the lock."""
    input_map: Mapping[str, str]
    output_map: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One input of a warm-up sample. ``data`` is ``zero``, ``random`` or ``file``."""

    name: str
    datatype: str
    dims: Shape
    """One item, without the batch dimension."""
    data: str
    file: str = ""
    """For ``file``: path under ``warmup/`` of the bundle; raw row-major bytes, BYTES elements with their lengths in front."""


@dataclass(frozen=True, slots=True)
class Warmup:
    """One sample that every instance answers before it is ready."""

    name: str
    batch_size: int
    count: int
    """How often it is run, at least 1."""
    inputs: tuple[WarmupInput, ...]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A function's configuration."""

    name: str
    backend: str
    """``python``, ``onnxruntime``; "" for an ensemble."""
    platform: str
    max_batch_size: int
    """0 = tensors have no batch dimension."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dynamic_batching: DynamicBatching | None = None
    instance_groups: tuple[InstanceGroup, ...] = ()
    """The groups that run: those of kind KIND_GPU, which a bundle may have beside a CPU group, stay in the record only."""
    steps: tuple[Step, ...] = ()
    """Of an ensemble, in the author's order."""
    warmups: tuple[Warmup, ...] = ()
    """Samples of batch size 0 are left out: Triton skips them too."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    default_model_filename: str = ""
    metric_tags: Mapping[str, str] = field(default_factory=dict)
    optimization: Mapping[str, Any] = field(default_factory=dict)
    """As in the normalised dictionary; {} for an ensemble."""
    input_named: Mapping[str, TensorSpec] = field(default_factory=dict)
    output_named: Mapping[str, TensorSpec] = field(default_factory=dict)

    @property
    def ensemble(self) -> bool:
        return self.platform == "ensemble"

    @property
    def instances(self) -> int:
        """All instances together; at least 1."""
        return max(1, sum(group.count for group in self.instance_groups))

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ModelConfig:
        """The view of a normalised dictionary. Raises InvalidRequest for a data type that does not exist, KeyError where a
        tensor has no name; everything else that may be missing has Triton's default."""
        batches = config.get("max_batch_size", 0) > 0
        inputs = tuple(_tensor(entry, batches) for entry in config.get("input", ()))
        outputs = tuple(_tensor(entry, batches) for entry in config.get("output", ()))
        return cls(
            name=config.get("name", ""),
            backend=config.get("backend", ""),
            platform=config.get("platform", ""),
            max_batch_size=config.get("max_batch_size", 0),
            inputs=inputs,
            outputs=outputs,
            dynamic_batching=_dynamic_batching(config.get("dynamic_batching")),
            instance_groups=tuple(
                InstanceGroup(group["name"], group["kind"], group["count"])
                for group in config.get("instance_group", ())
                if group["kind"] != "KIND_GPU"
            ),
            steps=tuple(_step(entry) for entry in config.get("ensemble_scheduling", {}).get("step", ())),
            warmups=tuple(_warmup(entry) for entry in config.get("model_warmup", ()) if entry.get("batch_size", 0) > 0),
            parameters={key: value.get("string_value", "") for key, value in config.get("parameters", {}).items()},
            default_model_filename=config.get("default_model_filename", ""),
            metric_tags=config.get("metric_tags", {}),
            optimization=config.get("optimization", {}),
            input_named={tensor.name: tensor for tensor in inputs},
            output_named={tensor.name: tensor for tensor in outputs},
        )


def _tensor(entry: Mapping[str, Any], batches: bool) -> TensorSpec:
    front: Shape = (-1,) if batches else ()
    dims = tuple(entry["dims"])
    reshape = tuple(entry["reshape"].get("shape", ())) if "reshape" in entry else None
    return TensorSpec(
        name=entry["name"],
        datatype=config_dtype(entry["data_type"]),
        dims=dims,
        full_shape=front + dims,
        model_shape=front + (dims if reshape is None else reshape),
        reshape=reshape,
        optional=entry.get("optional", False),
        label_filename=entry.get("label_filename", ""),
    )


def _dynamic_batching(entry: Mapping[str, Any] | None) -> DynamicBatching | None:
    if entry is None:
        return None
    return DynamicBatching(
        preferred=tuple(sorted(set(entry.get("preferred_batch_size", ())))),
        delay_us=entry.get("max_queue_delay_microseconds", 0),
        preserve_ordering=entry.get("preserve_ordering", False),
    )


def _step(entry: Mapping[str, Any]) -> Step:
    return Step(entry["model_name"], entry.get("model_version", 0), dict(entry.get("input_map", {})), dict(entry.get("output_map", {})))


def _warmup(entry: Mapping[str, Any]) -> Warmup:
    inputs = tuple(_warmup_input(name, value) for name, value in entry.get("inputs", {}).items())
    return Warmup(entry.get("name", ""), entry["batch_size"], max(1, entry.get("count", 0)), inputs)


def _warmup_input(name: str, entry: Mapping[str, Any]) -> WarmupInput:
    file = entry.get("input_data_file", "")
    data = "file" if file else "random" if "random_data" in entry else "zero"
    return WarmupInput(name, config_dtype(entry["data_type"]), tuple(entry["dims"]), data, file)
