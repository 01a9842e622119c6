"""ModelConfig: what a bundle's ``auto_complete_config`` receives, completes and returns."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


class ModelConfig:
    """Only ``max_batch_size``, the inputs and outputs, dynamic batching and the transaction policy can be completed. Every
    refusal is a ValueError with Triton's text."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """``config``: the configuration as JSON has it, snake_case; it is copied."""
        self._config: dict[str, Any] = copy.deepcopy(dict(config))
        self._config.setdefault("max_batch_size", 0)
        self._config.setdefault("input", [])
        self._config.setdefault("output", [])

    def as_dict(self) -> dict[str, Any]:
        """The configuration as completed so far."""
        return self._config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        present = self._config["max_batch_size"]
        if present > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {present}, but in auto-complete-config function for model "
                f"'{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{other}', but auto-complete-config function for model "
                    f"'{self._name}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._config.setdefault("dynamic_batching", {})

    def add_input(self, tensor: Mapping[str, Any]) -> None:
        """Keys: name, data_type, dims, optional."""
        self._add("input", tensor, ("name", "data_type", "dims", "optional"), "'name', 'data_type', 'dims' and 'optional'")

    def add_output(self, tensor: Mapping[str, Any]) -> None:
        """Keys: name, data_type, dims."""
        self._add("output", tensor, ("name", "data_type", "dims"), "'name', 'data_type' and 'dims'")

    def set_model_transaction_policy(self, policy: Mapping[str, Any]) -> None:
        """Key: decoupled."""
        if set(policy) - {"decoupled"}:
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{self._name}' contains property "
                f"other than 'decoupled'."
            )
        present = self._config.setdefault("model_transaction_policy", {})
        if "decoupled" in policy and present.setdefault("decoupled", policy["decoupled"]) != policy["decoupled"]:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._name}', "
                f"which is already set to '{present['decoupled']}'."
            )

    @property
    def _name(self) -> str:
        return str(self._config.get("name", ""))

    def _add(self, field: str, tensor: Mapping[str, Any], keys: tuple[str, ...], spelled: str) -> None:
        place = f"{field} '{tensor['name']}'" if "name" in tensor else field
        where = f"{place} in auto-complete-config function for model '{self._name}'"
        if set(tensor) - set(keys):
            raise ValueError(f"{where} contains property other than {spelled}.")
        for key in ("name", "data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{where} is missing '{key}' property.")
        for present in self._config[field]:
            if present.get("name") == tensor["name"]:
                self._agree(field, present, tensor)
                present.update(tensor)
                return
        self._config[field].append(dict(tensor))

    def _agree(self, field: str, present: Mapping[str, Any], tensor: Mapping[str, Any]) -> None:
        """Raises where the author's file says another thing; what the file leaves blank agrees with everything."""
        name = tensor["name"]
        if present.get("data_type", "TYPE_INVALID") not in ("TYPE_INVALID", tensor["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype {present['data_type']} for {field} "
                f"'{name}', model provides {tensor['data_type']}"
            )
        for key in ("dims", "optional"):
            if present.get(key) and key in tensor and _plain(present[key]) != _plain(tensor[key]):
                raise ValueError(
                    f"model '{self._name}', tensor '{name}': the model expects {key} {_plain(tensor[key])} "
                    f"but the model configuration specifies {key} {_plain(present[key])}"
                )


def _plain(value: Any) -> Any:
    """Dims as plain integers, whichever spelling they have (JSON writes int64 as text); a flag as it is."""
    return value if isinstance(value, bool) else [int(size) for size in value]
