"""What a configuration must be before a version is recorded: checked field by field, and completed as Triton completes it.

Nothing is ignored: a field is honoured, or kept because only a GPU could honour it (with a warning), or refused by name.
Idempotent: what came out goes through unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from functions import graph
from functions.config import backend, declared, optimization, scheduling, text, warmup
from functions.config.spec import ModelConfig
from functions.errors import BundleRefused
from functions.records import File


def prepare(config: Mapping[str, Any], name: str, *, directory: str = "") -> dict[str, Any]:
    """The configuration of the function ``name`` as its backend may complete it from the model: every field there, name and backend
    settled, nothing in it that this release refuses or that points out of the bundle. What one field says about another is
    checked by ``normalise``, when all of them are known. ``directory`` is what the bundle's folder was called, if that is
    known: the config's own ``name`` may be absent, the function's or the folder's. Raises BundleRefused with field and fix."""
    full = text.complete(dict(config))
    if full["name"] not in ("", name, directory):
        raise BundleRefused(
            f"{full['name']!r} is not the function's name", field="config.pbtxt: name", fix=f"write {name!r} or leave it out"
        )
    full["name"] = name
    full.update(backend.choose(full, (), name))
    _refuse_unavailable(full)
    _check_paths(full)
    _check_version_policy(full)
    return full


def normalise(config: Mapping[str, Any], name: str, warnings: list[str], *, directory: str = "") -> dict[str, Any]:
    """The configuration of the function ``name``, checked and completed; see ``prepare``, which it begins with. What is kept
    without effect is appended to ``warnings``. Raises BundleRefused with field and fix."""
    full = prepare(config, name, directory=directory)
    if full["max_batch_size"] < 0:
        raise BundleRefused(
            f"{full['max_batch_size']}",
            field="config.pbtxt: max_batch_size",
            fix="0 (tensors have no batch dimension) or the largest batch",
        )
    declared.check(full)
    _check_tags_and_parameters(full)
    if full["platform"] == "ensemble":
        _complete_ensemble(full)
    else:
        _complete_model(full, name, warnings)
    if full["cc_model_filenames"]:
        warnings.append("config.pbtxt: cc_model_filenames: kept without effect, because there is no GPU here")
    # Once more, so that what was filled in stands where Triton prints it.
    return text.complete(full)


def check_artifact(config: Mapping[str, Any], files: Mapping[str, File], author_dir: str) -> None:
    """Check that the model's file is in the bundle, given a prepared or normalised config. Raises BundleRefused."""
    artifact = f"{author_dir}/{config['default_model_filename']}"
    # It may be a folder (model.onnx/model.onnx beside its weights).
    found = artifact in files or any(path.startswith(artifact + "/") for path in files)
    if config["platform"] != "ensemble" and not found:
        raise BundleRefused(
            f"there is no {artifact!r} in the bundle", field="config.pbtxt: default_model_filename", fix="add the file or name another"
        )


def check_files(config: Mapping[str, Any], files: Mapping[str, File], author_dir: str) -> None:
    """Check that everything a normalised config names is in the bundle: the model's file, labels, warm-up data, and its own
    version directory among those of ``version_policy``. Raises BundleRefused."""
    check_artifact(config, files, author_dir)
    for index, output in enumerate(config["output"]):
        if output["label_filename"] and output["label_filename"] not in files:
            raise BundleRefused(
                f"there is no file {output['label_filename']!r} in the bundle",
                field=f"config.pbtxt: output[{index}].label_filename",
                fix="add it",
            )
    warmup.check_files(config, files)
    chosen = config["version_policy"].get("specific")
    if chosen is not None and author_dir and int(author_dir) not in chosen["versions"]:
        raise BundleRefused(
            f"{chosen['versions']} leaves out the bundle's own directory {author_dir!r}",
            field="config.pbtxt: version_policy.specific",
            fix="remove version_policy: each upload is one version",
        )


def _refuse_unavailable(config: Mapping[str, Any]) -> None:
    unavailable = {
        "sequence_batching": "sequence_batching" in config,
        "model_transaction_policy.decoupled": config.get("model_transaction_policy", {}).get("decoupled", False),
        "response_cache.enable": config.get("response_cache", {}).get("enable", False),
        "batch_input": config["batch_input"],
        "batch_output": config["batch_output"],
        "model_repository_agents.agents": config.get("model_repository_agents", {}).get("agents"),
        "model_operations.op_library_filename": config.get("model_operations", {}).get("op_library_filename"),
        "model_metrics.metric_control": config.get("model_metrics", {}).get("metric_control"),
        "runtime": config["runtime"],
        "ensemble_scheduling.max_inflight_requests": config.get("ensemble_scheduling", {}).get("max_inflight_requests", 0),
        "parameters[EXECUTION_ENV_PATH]": config["backend"] == "python" and "EXECUTION_ENV_PATH" in config["parameters"],
    }
    for field, used in unavailable.items():
        if used:
            raise BundleRefused(f"{field.split('.')[-1]} is not supported", field=f"config.pbtxt: {field}", fix=scheduling.LATER)
    for index, step in enumerate(config.get("ensemble_scheduling", {}).get("step", ())):
        if step["model_namespace"]:
            field = f"config.pbtxt: ensemble_scheduling.step[{index}].model_namespace"
            raise BundleRefused(f"{step['model_namespace']!r}", field=field, fix=scheduling.LATER)


def _check_paths(config: Mapping[str, Any]) -> None:
    paths = {"default_model_filename": config["default_model_filename"]}
    paths |= {f"output[{index}].label_filename": output["label_filename"] for index, output in enumerate(config["output"])}
    paths |= {
        f"model_warmup[{index}].inputs[{name}].input_data_file": entry.get("input_data_file", "")
        for index, sample in enumerate(config["model_warmup"])
        for name, entry in sample["inputs"].items()
    }
    for field, path in paths.items():
        if path and not _inside(path):
            raise BundleRefused(
                f"{path[:200]!r}", field=f"config.pbtxt: {field}", fix="a relative path inside the bundle, without '.' or '..'"
            )


def _inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return "/".join(parts) == path and parts[0] != "/" and ".." not in parts and "\0" not in path


def _check_version_policy(config: dict[str, Any]) -> None:
    policy = config.setdefault("version_policy", {})
    if not policy:
        policy["latest"] = {"num_versions": 1}
    for key, count in (("latest", "num_versions"), ("specific", "versions")):
        if key in policy and not policy[key][count]:
            raise BundleRefused(
                "serves no version at all",
                field=f"config.pbtxt: version_policy.{key}",
                fix="remove version_policy: each upload is one version",
            )


def _check_tags_and_parameters(config: Mapping[str, Any]) -> None:
    for key in config["metric_tags"]:
        if not re.fullmatch(r"[A-Za-z0-9_]+", key):
            raise BundleRefused(f"{key[:80]!r}", field="config.pbtxt: metric_tags", fix="a tag is made of letters, digits and '_'")
    forced = config["parameters"].get("FORCE_CPU_ONLY_INPUT_TENSORS", {}).get("string_value", "yes")
    if config["backend"] == "python" and forced not in ("yes", "no"):
        raise BundleRefused(f"{forced!r}", field="config.pbtxt: parameters[FORCE_CPU_ONLY_INPUT_TENSORS]", fix="write 'yes' or 'no'")


def _complete_model(config: dict[str, Any], name: str, warnings: list[str]) -> None:
    file = config["default_model_filename"]
    if config["backend"] == "python" and not file.endswith(".py"):
        raise BundleRefused(
            f"{file!r}", field="config.pbtxt: default_model_filename", fix="the python backend needs a file that ends in .py"
        )
    config["optimization"] = optimization.complete(config, warnings)
    scheduling.complete_batching(config, warnings)
    scheduling.complete_instances(config, name, warnings)
    warmup.check(config, warnings)


def _complete_ensemble(config: dict[str, Any]) -> None:
    for key in ("instance_group", "optimization", "model_warmup"):
        if config.get(key):
            raise BundleRefused("an ensemble has none", field=f"config.pbtxt: {key}", fix="set it in the configs of the functions it calls")
    config.setdefault("model_transaction_policy", {"decoupled": False})
    graph.check_steps(ModelConfig.of(config))
