"""The warm-up samples of a configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from functions.config.spec import ModelConfig, TensorSpec
from functions.errors import BundleRefused
from functions.records import File
from functions.tensors import config_dtype, config_type, fits, itemsize

FOLDER = "warmup"
"""Where the data files lie in a bundle."""

_SOURCES = ("zero_data", "random_data", "input_data_file")


def check(config: Mapping[str, Any], warnings: list[str]) -> None:
    """Check ``model_warmup`` of a completed dictionary against its inputs. Raises BundleRefused."""
    model = ModelConfig.of({**config, "model_warmup": ()})  # whose view trusts what is only checked here
    for index, sample in enumerate(config["model_warmup"]):
        field = f"config.pbtxt: model_warmup[{index}]"
        _check_batch(sample, model.max_batch_size, field, warnings)
        for name, entry in sample["inputs"].items():
            spec = model.input_named.get(name)
            if spec is None:
                known = ", ".join(model.input_named) or "none"
                raise BundleRefused(f"there is no input {name!r}", field=f"{field}.inputs", fix=f"the inputs are: {known}")
            _check_input(entry, spec, f"{field}.inputs[{name}]")
        for spec in model.inputs:
            if spec.name not in sample["inputs"] and not spec.optional:
                raise BundleRefused(f"the required input {spec.name!r} is missing", field=f"{field}.inputs", fix="add it")


def check_files(config: Mapping[str, Any], files: Mapping[str, File]) -> None:
    """Check that the data files of the samples are in the bundle, and long enough. Raises BundleRefused."""
    for index, sample in enumerate(config["model_warmup"]):
        for name, entry in sample["inputs"].items():
            if "input_data_file" not in entry:
                continue
            field = f"config.pbtxt: model_warmup[{index}].inputs[{name}].input_data_file"
            path = f"{FOLDER}/{entry['input_data_file']}"
            if path not in files:
                raise BundleRefused(f"there is no file {path!r} in the bundle", field=field, fix="add it")
            # An element of a BYTES tensor has at least its length, 4 bytes.
            need = math.prod(entry["dims"]) * (itemsize(config_dtype(entry["data_type"])) or 4)
            if files[path].size < need:
                raise BundleRefused(
                    f"{path!r} has {files[path].size} bytes", field=field, fix=f"one item of {name!r} needs at least {need}"
                )


def _check_batch(sample: Mapping[str, Any], limit: int, field: str, warnings: list[str]) -> None:
    size = sample["batch_size"]
    if limit == 0 and size != 1:
        raise BundleRefused(f"{size} without batching", field=f"{field}.batch_size", fix="write 1, or set max_batch_size")
    if size > max(1, limit):
        raise BundleRefused(f"{size}", field=f"{field}.batch_size", fix=f"at most max_batch_size, which is {limit}")
    if size == 0:
        warnings.append(f"{field}: batch_size is 0, so this sample is skipped, as Triton does; write batch_size: 1 to run it")


def _check_input(entry: Mapping[str, Any], spec: TensorSpec, field: str) -> None:
    if entry["data_type"] != config_type(spec.datatype):
        raise BundleRefused(entry["data_type"], field=f"{field}.data_type", fix=f"the input is {config_type(spec.datatype)}")
    if any(size < 0 for size in entry["dims"]):
        raise BundleRefused(f"{entry['dims']} leaves a size open", field=f"{field}.dims", fix="a sample needs every size")
    if not fits(spec.dims, entry["dims"]):
        raise BundleRefused(
            f"{entry['dims']}", field=f"{field}.dims", fix=f"the input has dims {list(spec.dims)}, the batch dimension not among them"
        )
    if not any(source in entry for source in _SOURCES):
        raise BundleRefused(
            "nothing says what data to send", field=field, fix="write zero_data: true, random_data: true or input_data_file"
        )
    if entry.get("input_data_file") == "":
        raise BundleRefused("an empty file name", field=f"{field}.input_data_file", fix=f"name a file in the folder {FOLDER}")
