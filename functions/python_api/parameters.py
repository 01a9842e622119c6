"""Parameters of requests and responses: a flat dictionary of bool, int and str."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from functions.python_api.errors import TritonModelException


def checked(parameters: Mapping[str, Any] | None) -> dict[str, bool | int | str]:
    """A copy of them; None is {}. Raises TritonModelException for a key or a value of another type."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise TypeError(f"parameters must be a dict or None, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return dict(parameters)
