"""Packages that import what they offer when it is first asked for.

Such an `__init__` has its imports under `if TYPE_CHECKING:`, where type checkers and readers find them, and
calls `on_demand.begin(globals())`.
"""

import ast
import importlib
import pathlib
from typing import Any


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
        package[name] = getattr(importlib.import_module(module), there)
        return package[name]

    package["__getattr__"] = get
    package["__all__"] = [*places, *functions]
    package["__dir__"] = lambda: sorted({*package, *package["__all__"]})
