"""Arrays that nobody else holds: inside one process tensors pass by reference, so who may write to what must be known."""

from __future__ import annotations

import sys

import numpy as np

_REFERENCES = 3
"""To an array that nobody else holds: its dictionary (or the view upon it), the local name, the argument of getrefcount."""


def own(outputs: dict[str, np.ndarray]) -> None:
    """Replace by a copy each array that an author's code may still hold and write to. A fresh array, the usual case, costs no copy."""
    for name in list(outputs):
        array = outputs[name]
        base = array.base
        shared = sys.getrefcount(array) > _REFERENCES
        if base is not None and not isinstance(base, bytes):
            shared = shared or not isinstance(base, np.ndarray) or sys.getrefcount(base) > _REFERENCES
        if shared:
            outputs[name] = array.copy()
