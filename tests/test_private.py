"""Private names of others stand in keras_tfm/private alone, exist, and mean what they did.

    make private

runs this file; do so when a version in constraints.txt moves. Where a method differs, read it again, then
what stands for it here, and put its new digest into the table READ.
"""

import ast
import functools
import hashlib
import inspect
import pathlib
import re
import sys
import textwrap

import pytest

import keras_tfm
from keras_tfm.private import keras, tensorflow, tensorflow_text

ROOT = pathlib.Path(keras_tfm.__file__).parent
MODULES = (keras, tensorflow, tensorflow_text)
TABLE = [(cls, name) for module in MODULES for cls, names in module.ATTRIBUTES.items() for name in names]
METHODS = [(method, digest) for module in MODULES for method, digest in module.READ.items()]
PUBLIC = {"_replace", "_fields", "_asdict", "_exit"}  # of named tuples and os: documented
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT / "private"]
TREES = {path: ast.parse(path.read_text("utf-8")) for path in FILES}


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


@functools.cache
def own_names():
    """Private names that the package itself defines: methods, functions, attributes of `self`."""
    names = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names


def is_self(node):
    is_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    return is_super or (isinstance(node, ast.Name) and node.id in ("self", "cls"))


def foreign_uses(tree, own, table):
    """Where a file uses a private name of others: (line, name)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            for name in names:
                if {"src", "python"} & set(name.split(".")[1:]) or any(map(is_private, name.split("."))):
                    yield node.lineno, name
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in PUBLIC:
            is_foreign = node.attr in table if not is_self(node.value) else node.attr not in own | table
            if is_foreign or node.attr not in own | table:
                yield node.lineno, node.attr


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_names_stand_in_private_alone(path):
    found = list(foreign_uses(TREES[path], own_names(), {name for _, name in TABLE}))
    assert not found, f"{path.relative_to(ROOT)}: move these to keras_tfm/private: {found}"


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("from keras.src.backend import rnn", True),
        ("import tensorflow.python.ops", True),
        ("from keras import ops", False),
        ("model._flatten_layers()", True),
        ("self._flatten_layers()", False),
        ("class A:\n def f(self): return super()._make_function(1)", False),
        ("self._nobody_defines_this", True),
        ("row._replace(a=1)", False),
    ],
)
def test_the_search_finds(text, is_found):
    assert bool(list(foreign_uses(ast.parse(text), own_names(), {name for _, name in TABLE}))) == is_found


@pytest.mark.parametrize(("cls", "name"), TABLE, ids=lambda value: getattr(value, "__name__", value))
def test_private_names_exist(cls, name):
    modules = {base.__module__ for base in cls.__mro__} - {"builtins"}
    sources = "".join(inspect.getsource(sys.modules[module]) for module in modules)
    assert hasattr(cls, name) or re.search(rf"self\.{name}\b(:.*|, self\.\w+)? = ", sources)


def digest_of(method):
    """A digest of a method's syntax tree: comments and layout do not count."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]


@pytest.mark.parametrize(("method", "digest"), METHODS, ids=lambda x: getattr(x, "__qualname__", x))
def test_methods_that_ours_stand_for_are_those_that_were_read(method, digest):
    now = digest_of(method)
    assert now == digest, f"{method.__qualname__} has changed, its digest is {now} now: read it again"
