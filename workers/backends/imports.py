"""How a bundle imports its own files, beside other bundles in the same process that may ship the same names.

Each bundle is one package of a mangled name, ``_despina_bundle_<n>``, whose path is its version directory and then its model
directory: ``model.py`` is ``_despina_bundle_1.model``, ``helper.py`` next to it ``_despina_bundle_1.helper``. Every module of a bundle
is given builtins of its own, in which ``__import__`` looks for a top-level name in this order: what the platform provides to
the bundle (``triton_python_backend_utils``), the standard library, the bundle's files, the environment. So two bundles may
both ship ``helper``, neither sees the other's, and nobody edits ``sys.path`` or purges ``sys.modules``. (Triton appends the bundle
to ``sys.path``, where the environment wins over the bundle's files; here a bundle means the same whatever else is installed.)

What goes round the statement (``importlib.import_module("helper")``, an unpickled ``helper.Thing``) has no caller to tell
bundles apart by. It works for a name that one bundle of the process ships and the environment does not; else it raises.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Any

_PREFIX = "_despina_bundle_"


class Bundle:
    """The files of one bundle as importable modules: ``paths`` searched in order, ``provided`` by name before them."""

    def __init__(self, paths: Sequence[str], provided: Mapping[str, ModuleType]) -> None:
        self.package = f"{_PREFIX}{len(_BUNDLES) + 1}"
        self.paths = list(paths)
        self.provided = dict(provided)
        self.builtins = {**vars(builtins), "__import__": self._import}
        self._owned: dict[str, bool] = {}
        package = ModuleType(self.package, f"The bundle in {self.paths[0]}.")
        package.__path__ = self.paths
        package.__package__ = self.package
        sys.modules[self.package] = package
        for name in [name for name in _ALIASES if self.owns(name.partition(".")[0])]:
            sys.modules.pop(name, None)
            _ALIASES.discard(name)
        _BUNDLES[self.package] = self
        if _FIRST not in sys.meta_path:
            sys.meta_path.insert(0, _FIRST)
            sys.meta_path.append(_LAST)

    def load(self, file: str) -> ModuleType:
        """The module that ``file``, a path inside the bundle, defines. Raises FileNotFoundError, and whatever its code raises."""
        path = Path(file)
        if not path.is_file():
            raise FileNotFoundError(f"{file} does not exist")
        name = f"{self.package}.{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)  # type: ignore[union-attr]
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def owns(self, top: str) -> bool:
        """Whether the top-level name ``top`` means a file of this bundle, by its own import statements."""
        known = self._owned.get(top)
        if known is None:
            known = self._owned[top] = top in self.provided or (top not in sys.stdlib_module_names and self._ships(top))
        return known

    def find(self, name: str, path: Sequence[str]) -> ModuleSpec | None:
        """The spec of the bundle's module ``name`` (mangled), looked for in ``path``."""
        folder = None
        for entry in path:
            spec = FileFinder(entry, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_Source, SOURCE_SUFFIXES)).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
            folder = folder or spec
        return folder

    def module(self, name: str) -> ModuleType:
        """The bundle's module that its own files call ``name`` (dotted)."""
        provided = self.provided.get(name)
        return provided if provided is not None else importlib.import_module(f"{self.package}.{name}")

    def _ships(self, top: str) -> bool:
        spec = self.find(f"{self.package}.{top}", self.paths)
        if spec is None:
            return False
        # A folder without __init__.py is a package only if nobody else's is meant: weights may lie in a folder named torch.
        return spec.loader is not None or (top not in sys.modules and PathFinder.find_spec(top) is None)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What the bundle's own ``import`` statements call."""
        top = name.partition(".")[0]
        if level or not self.owns(top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = self.module(name)
        _alias(self, name)
        if not fromlist:
            return self.module(top)
        if hasattr(module, "__path__"):
            # ``from package import part``: a part may be a module that is not imported yet.
            return builtins.__import__(module.__name__, globals, locals, fromlist, 0)
        return module


class _Source(SourceFileLoader):
    """Loads a bundle's source file with its bundle's own builtins."""

    def exec_module(self, module: ModuleType) -> None:
        bundle = _BUNDLES[module.__name__.partition(".")[0]]
        vars(module)["__builtins__"] = bundle.builtins
        super().exec_module(module)


class _First(MetaPathFinder):
    """Finds the modules of bundles by their mangled names, and the parts of a package that is already known by its plain name."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        top, dot, _ = name.partition(".")
        if not dot:
            return None
        bundle = _BUNDLES.get(top)
        if bundle is not None:
            return bundle.find(name, path or ())
        package = sys.modules.get(top)
        owner = _BUNDLES.get(getattr(package, "__name__", "").partition(".")[0])
        if owner is None:
            return None
        _ALIASES.add(name)
        return ModuleSpec(name, _Known(owner.module(name)))


class _Last(MetaPathFinder):
    """Finds a top-level name that nothing else provides and that one bundle ships."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        if "." in name:
            return None
        owners = [bundle for bundle in _BUNDLES.values() if bundle.owns(name)]
        if len(owners) > 1:
            raise ImportError(
                f"{name!r} is shipped by {len(owners)} bundles of this process ({', '.join(bundle.paths[0] for bundle in owners)}): "
                f"write 'import {name}' in the bundle's own file, which tells them apart",
                name=name,
            )
        if not owners:
            return None
        _ALIASES.add(name)
        return ModuleSpec(name, _Known(owners[0].module(name)))


class _Known(Loader):
    """Gives a module that is loaded already, under one more name."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec, self._loader = module.__spec__, getattr(module, "__loader__", None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:  # noqa: ARG002
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the alias's spec over the module's own: give it back.
        module.__spec__, module.__loader__ = self._spec, self._loader


def _alias(bundle: Bundle, name: str) -> None:
    """Make ``name`` known to the whole process too, where it is nobody else's: pickles name classes by it."""
    top = name.partition(".")[0]
    if name in sys.modules or any(other.owns(top) for other in _BUNDLES.values() if other is not bundle):
        return
    if top in sys.modules and sys.modules[top] is not bundle.module(top):
        return
    if top not in sys.modules and PathFinder.find_spec(top) is not None:
        return
    sys.modules[name] = bundle.module(name)
    _ALIASES.add(name)


_BUNDLES: dict[str, Bundle] = {}
_ALIASES: set[str] = set()
"""Plain names that were made known to the whole process for one bundle, until another ships them too."""
_FIRST, _LAST = _First(), _Last()
