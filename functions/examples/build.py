"""Builds the example bundles: ``python -m functions.examples.build [--out .build/examples]``.

The result is a Triton model repository: one directory a function, deployable as it is. Beside it lies ``<out>-careful`` with
another ``digits``, whose threshold is higher: the next version to publish.

A bundle is built again only when something it is made of has changed: its files under ``bundles/``, the module that makes its
model, ``models.lock`` or a library's version. No model file is part of the source: they come out of packages, or are trained here.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from functions.examples import packages

HERE = Path(__file__).parent
LIBRARIES = ("numpy", "onnx", "scikit-learn", "skl2onnx")
"""What decides, besides our own files, which bytes a made model has."""


@dataclass(frozen=True, slots=True)
class Example:
    """One bundle, and where its model comes from."""

    name: str
    maker: str = ""
    """``module:function`` of this package, called as ``function(packages, bundle)``; as text, so that its libraries are
    imported only when there is something to make. Empty: the bundle is complete as it is."""
    threshold: str = ""
    """Written into the configuration in place of the bundle's own."""


EXAMPLES = (
    Example("identity"),
    Example("decode_image"),
    Example("text_detector", "text_models:detector"),
    Example("text_boxes"),
    Example("detect_text"),
    Example("text_recognizer", "text_models:recogniser"),
    Example("read_text"),
    Example("digits_small", "digits:small"),
    Example("digits_big", "digits:big"),
    Example("digits"),
    Example("resnet50", "resnet50:batched"),
)
"""Callees before their callers: the order to deploy them in."""
CAREFUL = (Example("digits", threshold="0.50"),)


def build(out: Path, models: Path) -> list[Path]:
    """Bring ``out`` and ``<out>-careful`` up to date and return the bundles that were built anew; ``models`` is where the model
    packages are kept. Safe to call from several processes. Raises PackagesMissing."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with alone(out):
        return [*build_all(EXAMPLES, out, models), *build_all(CAREFUL, careful(out), models)]


def careful(out: Path) -> Path:
    """The repository of second versions that belongs to ``out``."""
    return out.with_name(f"{out.name}-careful")


def build_all(examples: tuple[Example, ...], out: Path, models: Path) -> list[Path]:
    """Bring one repository up to date, and remove what it holds no more."""
    out.mkdir(exist_ok=True)
    stamps = out / "stamps.json"  # a plain file: Triton takes only directories for models
    before = json.loads(stamps.read_text()) if stamps.is_file() else {}
    wanted = {example.name: fingerprint(example) for example in examples}
    for name in before.keys() - wanted.keys():
        shutil.rmtree(out / name, ignore_errors=True)
    stale = [example for example in examples if before.get(example.name) != wanted[example.name] or not (out / example.name).is_dir()]
    for example in stale:
        write(example, out / example.name, models)
    stamps.write_text(json.dumps(wanted, indent=1))
    return [out / example.name for example in stale]


def fingerprint(example: Example) -> str:
    """A digest of everything that the bundle is made of."""
    digest = hashlib.sha256(f"{example.maker} {example.threshold}\n".encode())
    sources = [path for path in sorted((HERE / "bundles" / example.name).rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    if example.maker:
        sources += [HERE / f"{example.maker.partition(':')[0]}.py", packages.LOCK]
        digest.update(" ".join(importlib.metadata.version(library) for library in LIBRARIES).encode())
    for path in sources:
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(HERE)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def write(example: Example, bundle: Path, models: Path) -> None:
    """Build one bundle beside its place, then put it there: nobody sees half of it."""
    with tempfile.TemporaryDirectory(dir=bundle.parent.parent, prefix=".building-") as workplace:
        made = Path(workplace) / example.name
        shutil.copytree(HERE / "bundles" / example.name, made, ignore=shutil.ignore_patterns("__pycache__"))
        (made / "1").mkdir(exist_ok=True)  # Triton wants a version directory of an ensemble too
        if example.maker:
            module, _, function = example.maker.partition(":")
            make = getattr(importlib.import_module(f"functions.examples.{module}"), function)
            make(packages.install(models), made)
        if example.threshold:
            set_threshold(made / "config.pbtxt", example.threshold)
        shutil.rmtree(bundle, ignore_errors=True)
        os.rename(made, bundle)


def set_threshold(config: Path, threshold: str) -> None:
    """Replace the value of the parameter ``threshold``; a configuration without exactly one is our mistake."""
    before, marker, rest = config.read_text().partition('key: "threshold" value { string_value: "')
    assert marker, f"{config} has no parameter threshold"
    config.write_text(f"{before}{marker}{threshold}{rest[rest.index(chr(34)) :]}")


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Hold the lock of this repository: a second build waits, and then finds its work done."""
    with out.with_name(f"{out.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m functions.examples.build", description="Build the example bundles.")
    parser.add_argument("--out", type=Path, default=Path(".build/examples"), help="the model repository to build (default: %(default)s)")
    parser.add_argument("--models", type=Path, default=Path(".build/models"), help="where model packages are kept (default: %(default)s)")
    options = parser.parse_args()
    try:
        built = build(options.out, options.models)
    except packages.PackagesMissing as error:
        print(error, file=sys.stderr)
        return 1
    for bundle in built:
        print(f"built {bundle}")
    print(f"{options.out}: {len(EXAMPLES)} functions, {careful(options.out)}: {len(CAREFUL)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
