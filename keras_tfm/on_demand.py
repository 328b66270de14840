"""Packages that import what they offer when it is first asked for.

Such an `__init__` has its imports under `if TYPE_CHECKING:`, where type checkers and readers find them, and
calls `on_demand.begin(globals())`.
"""

import ast
import importlib
import pathlib
import random
import sys
import types
from typing import Any

PLACES = "__places__"  # in a package's globals: {name: (module, its name there)}


class Package(types.ModuleType):
    """A package in which a name may also be the name of a module: importing the module leaves the name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, types.ModuleType) and name in vars(self)[PLACES]):
            super().__setattr__(name, value)


def imported(name: str) -> types.ModuleType:
    """The module of this name. Python's random numbers go on as if it had been there before: initializers
    that stand in a module draw a seed each, and a seed that was set is to give the same weights each time.
    """
    state = random.getstate()
    try:
        return importlib.import_module(name)
    finally:
        random.setstate(state)


def all_of(package: types.ModuleType) -> dict[str, Any]:
    """{name: value} of all that a package imports on demand; this imports it."""
    return {name: getattr(package, name) for name in vars(package)[PLACES]}


def begin(package: dict[str, Any]) -> None:
    """Let the package with these globals import, name by name, what its file imports for type checkers."""
    places: dict[str, tuple[str, str]] = {}  # {name: (module, its name there)}
    functions: list[str] = []
    for node in ast.parse(pathlib.Path(package["__file__"]).read_text("utf-8")).body:
        if isinstance(node, ast.If):
            imports = [part for part in node.body if isinstance(part, ast.ImportFrom)]
            places |= {
                each.asname or each.name: (part.module or "", each.name)
                for part in imports
                for each in part.names
            }
        elif isinstance(node, ast.FunctionDef):
            functions.append(node.name)

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        module, there = places[name]
        package[name] = getattr(imported(module), there)
        return package[name]

    sys.modules[package["__name__"]].__class__ = Package
    package[PLACES] = places
    package["__getattr__"] = get
    package["__all__"] = [*places, *functions]
    package["__dir__"] = lambda: sorted({*package, *package["__all__"]})
