"""Bundles that import their own files, beside each other in one process."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from workers.backends.imports import Bundle

MODULE = ModuleType("given")


def bundle(folder: Path, **files: str) -> Bundle:
    """``files``: path with ``__`` for ``/``, without ``.py``."""
    (folder / "1").mkdir(parents=True)
    for name, source in files.items():
        path = folder / "1" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
    return Bundle([str(folder / "1"), str(folder)], {"given": MODULE})


def test_two_bundles_may_ship_the_same_names(tmp_path: Path) -> None:
    files = "from twin_a import WHO\nimport twin_pkg.part as part\nWHERE = part.WHERE"
    made = [
        bundle(
            tmp_path / who,
            model=files,
            twin_a=f"WHO = {who!r}",
            twin_pkg__init="",
            twin_pkg__part=f"from ..twin_a import WHO\nWHERE = WHO + {who!r}",
        )
        for who in ("one", "two")
    ]
    loaded = [each.load(f"{each.paths[0]}/model.py") for each in made]

    assert ["one", "two"] == [module.WHO for module in loaded]
    assert ["oneone", "twotwo"] == [module.WHERE for module in loaded]


def test_modules_know_their_files(tmp_path: Path) -> None:
    """Authors find their weights by ``os.path.dirname(__file__)``."""
    made = bundle(tmp_path, model="import where_side\nHERE = (__file__, where_side.__file__)", where_side="A = 1")

    assert (f"{tmp_path}/1/model.py", f"{tmp_path}/1/where_side.py") == made.load(f"{tmp_path}/1/model.py").HERE


def test_imports_inside_functions_still_find_the_right_bundle(tmp_path: Path) -> None:
    made = [
        bundle(tmp_path / who, model="def ask():\n    import twin_late\n    return twin_late.WHO", twin_late=f"WHO = {who!r}")
        for who in ("one", "two")
    ]

    assert ["one", "two"] == [each.load(f"{each.paths[0]}/model.py").ask() for each in made]


def test_a_package_with_relative_imports_works(tmp_path: Path) -> None:
    made = bundle(
        tmp_path,
        model="from . import rel_side\nfrom .rel_pkg import inner\nfrom rel_pkg import outer\nVALUES = (rel_side.A, inner.B, outer.C)",
        rel_side="A = 1",
        rel_pkg__init="",
        rel_pkg__inner="from ..rel_side import A\nB = A + 1",
        rel_pkg__outer="from .inner import B\nC = B + 1",
    )

    assert (1, 2, 3) == made.load(f"{tmp_path}/1/model.py").VALUES


def test_import_of_a_dotted_name_binds_the_top(tmp_path: Path) -> None:
    made = bundle(tmp_path, model="import dot_pkg.part\nVALUE = dot_pkg.part.V", dot_pkg__init="", dot_pkg__part="V = 5")

    assert 5 == made.load(f"{tmp_path}/1/model.py").VALUE


def test_the_module_the_platform_provides_is_the_bundles_own(tmp_path: Path) -> None:
    made = bundle(tmp_path, model="import given\nfrom given import __name__ as name")

    assert MODULE is made.load(f"{tmp_path}/1/model.py").given


def test_the_standard_library_cannot_be_shadowed_but_the_environment_can(tmp_path: Path) -> None:
    made = bundle(tmp_path, model="import json, numpy\nA, B = json.dumps, numpy.OURS", json="dumps = 1", numpy="OURS = 2")
    module = made.load(f"{tmp_path}/1/model.py")

    assert callable(module.A)
    assert 2 == module.B
    assert hasattr(sys.modules["numpy"], "ndarray")


def test_a_folder_of_data_does_not_hide_an_installed_package(tmp_path: Path) -> None:
    (tmp_path / "1" / "numpy").mkdir(parents=True)
    (tmp_path / "1" / "model.py").write_text("import numpy\nX = numpy.zeros(1)")
    made = Bundle([str(tmp_path / "1"), str(tmp_path)], {})

    assert [0] == made.load(f"{tmp_path}/1/model.py").X.tolist()


def test_a_name_that_one_bundle_ships_can_be_imported_by_text(tmp_path: Path) -> None:
    made = bundle(
        tmp_path, model="import importlib\nV = importlib.import_module('only_here.part').V", only_here__init="", only_here__part="V = 3"
    )
    module = made.load(f"{tmp_path}/1/model.py")

    assert 3 == module.V
    assert importlib.import_module("only_here.part") is importlib.import_module(f"{made.package}.only_here.part")


def test_a_name_that_two_bundles_ship_cannot_be_imported_by_text(tmp_path: Path) -> None:
    first = bundle(tmp_path / "one", model="import both_ship", both_ship="")
    first.load(f"{tmp_path}/one/1/model.py")
    bundle(tmp_path / "two", both_ship="")

    with pytest.raises(ImportError, match="shipped by 2 bundles"):
        importlib.import_module("both_ship")


def test_objects_of_a_bundles_classes_can_be_pickled_and_read_back(tmp_path: Path) -> None:
    made = bundle(
        tmp_path,
        model="""
            import pickle
            from pickled_kinds import Kind
            BACK = pickle.loads(pickle.dumps(Kind(4)))
        """,
        pickled_kinds="class Kind:\n    def __init__(self, n): self.n = n",
    )
    module = made.load(f"{tmp_path}/1/model.py")

    assert 4 == module.BACK.n
    assert isinstance(module.BACK, module.Kind)


def test_a_pickle_made_where_the_bundle_was_written_can_be_read(tmp_path: Path) -> None:
    made = bundle(
        tmp_path,
        model="import pickle\nBACK = pickle.loads(b'cwritten_kinds\\nKind\\n.')\nimport written_kinds\nSAME = BACK is written_kinds.Kind",
        written_kinds="class Kind: ...",
    )

    assert made.load(f"{tmp_path}/1/model.py").SAME


def test_nobody_elses_import_state_is_touched(tmp_path: Path) -> None:
    path = list(sys.path)
    made = bundle(tmp_path, model="import quiet_side", quiet_side="import numpy")
    made.load(f"{tmp_path}/1/model.py")

    assert path == sys.path


def test_a_module_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    made = bundle(tmp_path, model="1 / 0")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            made.load(f"{tmp_path}/1/model.py")

    assert f"{made.package}.model" not in sys.modules
