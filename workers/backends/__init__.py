"""One inference library a file. This table is all the platform knows of them: name → module, class, extra."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a backend lives, as text, so that its library is imported only in the process that runs it."""

    module: str
    cls: str
    extra: str = ""
    """The extra to install (``pip install despina[onnx]``), and the import that proves it."""
    library: str = ""


BACKENDS: dict[str, Entry] = {
    "python": Entry("workers.backends.python", "PythonBackend"),
    "onnxruntime": Entry("workers.backends.onnx", "OnnxBackend", extra="onnx", library="onnxruntime"),
}
