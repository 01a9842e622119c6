"""What can be told of an author's ``model.py`` without running it."""

from __future__ import annotations

import ast
from pathlib import Path

from functions.errors import BundleRefused


def parsed(path: Path, field: str) -> ast.Module:
    """The file as a tree, if it compiles. Raises BundleRefused with its line; ``field`` is its path in the bundle."""
    try:
        source = path.read_bytes()
    except OSError:
        raise BundleRefused(
            f"{path.name} does not exist", field=field, fix="add it, or name another file in default_model_filename"
        ) from None
    try:
        compiled = compile(source, str(path), "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise BundleRefused(f"SyntaxError: {error.msg}", field=f"{field}:{error.lineno}", fix="it must compile with Python 3.11") from error
    except ValueError as error:
        raise BundleRefused(f"it is not Python source: {error}", field=field, fix="it must compile with Python 3.11") from error
    assert isinstance(compiled, ast.Module)
    return compiled


def may_define(tree: ast.Module, name: str) -> bool:
    """Whether running the module might bind ``name``: a class, an assignment, an import, anywhere but in functions."""
    text = ast.dump(tree)
    return f"name='{name}'" in text or f"id='{name}'" in text or f"asname='{name}'" in text or "alias(name='*')" in text


def lacks_method(tree: ast.Module, name: str, method: str) -> bool:
    """Whether class ``name`` certainly has no ``method``: a plain top-level class, without bases, in a file that does not mention it."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return not (node.bases or node.decorator_list or node.keywords) and method not in ast.dump(tree)
    return False
