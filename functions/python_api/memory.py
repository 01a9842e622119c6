"""Where the outputs of a call should lie. This release has CPU memory only."""

from __future__ import annotations

from enum import IntEnum

from functions.python_api.absent import refuse


class MemoryType(IntEnum):
    TRITONSERVER_MEMORY_CPU = 0
    TRITONSERVER_MEMORY_GPU = 1


class PreferredMemory:
    """Raises TritonModelException for GPU memory, rather than placing the outputs elsewhere."""

    __slots__ = ()

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:  # noqa: ARG002  (Triton's signature)
        if MemoryType(preferred_memory_type) is not MemoryType.TRITONSERVER_MEMORY_CPU:
            refuse("PreferredMemory(TRITONSERVER_MEMORY_GPU)", "outputs lie in CPU memory; use TRITONSERVER_MEMORY_CPU")
