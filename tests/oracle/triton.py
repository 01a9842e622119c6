"""A real Triton Inference Server on this machine, to measure against.

``python -m tests.oracle.triton DIR`` installs it (Triton 2.51: core, ensembles, Python backend; CPU only) out of the
``nvidia-pytriton`` wheel into a virtual environment under DIR, about 400 MB. ``TRITON_HOME=DIR`` then lets the bench use it.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WHEEL = "nvidia-pytriton==0.7.0"


def installed() -> Path | None:
    """Where TRITON_HOME says a Triton is installed, or None."""
    named = os.environ.get("TRITON_HOME")
    return Path(named) if named and (Path(named) / "tritonserver").exists() else None


def install(directory: Path) -> None:
    """Make DIR hold a Triton with its Python backend's stub for this interpreter."""
    environment = directory / "venv"
    venv.create(environment, with_pip=True)
    subprocess.run([environment / "bin" / "pip", "install", "-q", WHEEL], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    package = site / "pytriton"
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    backend = directory / "backends" / "python"
    shutil.copytree(package / "tritonserver" / "backends" / "python", backend, dirs_exist_ok=True)
    shutil.copy2(package / "tritonserver" / "python_backend_stubs" / minor / "triton_python_backend_stub", backend)
    for name, target in {
        "tritonserver": package / "tritonserver" / "bin" / "tritonserver",
        "libs": site / "nvidia_pytriton.libs",
    }.items():
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(target)


@contextmanager
def running(directory: Path, repository: Path, http_port: int, metrics_port: int, grpc_port: int, *flags: str) -> Iterator[None]:
    """A Triton serving ``repository`` until the ``with`` ends. Raises TimeoutError when it is not ready within 60 s."""
    environment = directory / "venv"
    library = sysconfig.get_config_var("LIBDIR")
    process = subprocess.Popen(
        [
            str(directory / "tritonserver"),
            f"--model-repository={repository}",
            f"--backend-directory={directory / 'backends'}",
            "--allow-gpu-metrics=false",
            f"--http-port={http_port}",
            f"--grpc-port={grpc_port}",
            f"--metrics-port={metrics_port}",
            *flags,
        ],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": f"{directory / 'libs'}:{library}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": sysconfig.get_path("purelib", vars={"base": str(environment)}),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not _ready(http_port):
            if time.monotonic() > deadline or process.poll() is not None:
                raise TimeoutError(f"Triton is not ready (exit code {process.poll()})")
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    install(Path(sys.argv[1]).resolve())
