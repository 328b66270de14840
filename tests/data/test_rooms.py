"""Who may import whom within `data`: sources know neither tokenizers nor batches, tokenizers no batches,
and none of them the worlds.
"""

import ast
import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(importlib.util.find_spec("keras_tfm.data").submodule_search_locations[0])
BARRED = {
    "sources": ("tokenizers", "batches", "worlds"),
    "worlds": ("tokenizers", "batches"),
    "tokenizers": ("batches", "worlds"),
    "batches": ("worlds",),
}


@pytest.mark.parametrize("room", BARRED)
def test_rooms_are_entered_in_their_order(room):
    barred = tuple(f"keras_tfm.data.{other}" for other in BARRED[room])
    files = sorted((FOLDER / room).glob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found = [module for module in modules if module.startswith(barred)]
            assert not found, f"{file.name}:{node.lineno} imports {', '.join(found)}"
