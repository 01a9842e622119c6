"""One inference library a file. This table is all the platform knows of them: name → module, class, extra, default artifact."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a backend lives, as text, so that its library is imported only in the process that runs it."""

    module: str
    cls: str
    artifact: str
    """Triton's default file name in the version directory."""
    platform: str = ""
    """Triton's ``platform`` value, where the backend has one."""
    extra: str = ""
    """The extra to install (``pip install despina[onnx]``), and the import that proves it."""
    library: str = ""


BACKENDS: dict[str, Entry] = {
    "python": Entry("workers.backends.python", "PythonBackend", "model.py"),
    "onnxruntime": Entry(
        "workers.backends.onnx", "OnnxBackend", "model.onnx", platform="onnxruntime_onnx", extra="onnx", library="onnxruntime"
    ),
}
