"""``python -m tests.functions.config.regenerate`` writes ``model_config_pb2.py`` again from the .proto file.

protoc puts every message into the process's one default pool, where the same package and names of another library (the gRPC
client of Triton) would clash with ours and neither would load. Ours is given a pool of its own instead.
"""

from __future__ import annotations

from pathlib import Path

import grpc_tools
from grpc_tools import protoc

import functions.config

SOURCE = Path(functions.config.__path__[0]) / "model_config.proto"
ROOT = SOURCE.parents[2]
GENERATED = SOURCE.with_name("model_config_pb2.py")


def generate(into: Path) -> None:
    """Write what protoc makes of the .proto file below the folder. Raises RuntimeError when protoc refuses it."""
    well_known = Path(grpc_tools.__path__[0]) / "_proto"
    source = str(SOURCE.relative_to(ROOT))
    status = protoc.main(["protoc", f"-I{ROOT}", f"-I{well_known}", f"--python_out={into}", source])
    if status != 0:
        raise RuntimeError(f"protoc ended with status {status} on {SOURCE}")
    module = into / GENERATED.relative_to(ROOT)
    text = module.read_text()
    if text.count("_descriptor_pool.Default()") != 1:
        raise RuntimeError(f"{module} no longer names the default pool once; give it a pool of its own in another way")
    module.write_text("# mypy: ignore-errors\n" + text.replace("_descriptor_pool.Default()", "_descriptor_pool.DescriptorPool()"))


if __name__ == "__main__":
    generate(ROOT)
