"""The tables of docs/models.md, made from the code: `python docs/extensions/families.py` writes them anew.

What a family is and whose paper it follows is the first sentence of its file.
"""

import ast
import importlib
import re
import runpy
from pathlib import Path

from keras_tfm import models
from keras_tfm.convert import huggingface, timm
from keras_tfm.on_demand import all_of

PAGE = Path(__file__).parents[1] / "models.md"
REFERENCES = Path(__file__).parents[2] / "tests" / "parity" / "references"
TABLE = re.compile(r"<!-- families: (?P<folder>\w+) -->\n(?P<rows>.*?)<!-- end -->", re.DOTALL)
MARKED = "<!-- families: {} -->\n{}<!-- end -->"
HEADER = "| model | what it is | sizes | folders of | compared with |\n|---|---|---|---|---|\n"
MOST_SIZES = 8


def families():
    """{folder of keras_tfm/models: {name: family}} of the families that have sizes, by name."""
    folders = {}
    for name, family in sorted(all_of(models).items(), key=lambda item: item[0].lower()):
        if getattr(family, "sizes", None) and family.__module__.startswith("keras_tfm.models."):
            folders.setdefault(family.__module__.split(".")[2], {})[name] = family
    return folders


def first_sentence(family):
    """What a family's file says of itself, on one line."""
    text = " ".join(importlib.import_module(family.__module__).__doc__.split("\n\n")[0].split())
    return text.rstrip(".").replace("|", "\\|")


def sizes_of(family):
    """The names of a family's sizes, the first ones alone if there are many."""
    names = list(family.sizes)
    more = [f"and {len(names) - MOST_SIZES} more"] if len(names) > MOST_SIZES else []
    return ", ".join(names[:MOST_SIZES] + more)


def readers():
    """{library: the families whose folders are read and written}."""
    return {
        "transformers": {huggingface.family_of_type(name).model for name in huggingface.TABLES},
        "timm": {importlib.import_module(f"keras_tfm.convert.{name}").TIMM.model for name in timm.FAMILIES},
    }


def references():
    """{name of a family, of its configuration or of its module: repositories and libraries that
    `tests.parity.golden` compares it with}.
    """
    table = runpy.run_path(str(REFERENCES / "__init__.py"))["READERS"]
    compared = {}
    for reference, reader in table.items():
        named = re.match(r"(?!\S+\.py )[\w-]+/[\w.-]+(?= )|(?:diffusers|timm|transformers)\b", reference)
        tree = ast.parse((REFERENCES / f"{reader.partition('.')[0]}.py").read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("keras_tfm.models"):
                for name in (node.module, *(alias.name for alias in node.names)):
                    compared.setdefault(name, []).append(named[0] if named else "published code")
    return compared


def row(name, family, read, compared):
    """A family's row: `read` are the `readers`, `compared` the `references`."""
    folders = [library for library in read if family in read[library]]
    others = [other for key in (name, f"{name}Config", family.__module__) for other in compared.get(key, [])]
    cells = f"`{name}`", first_sentence(family), sizes_of(family), ", ".join(folders) or "-"
    return f"| {' | '.join(cells)} | {', '.join(dict.fromkeys([*folders, *others])) or '-'} |\n"


def tables():
    """{folder of keras_tfm/models: the Markdown of its table}."""
    read, compared = readers(), references()
    return {
        folder: HEADER + "".join(row(name, family, read, compared) for name, family in members.items())
        for folder, members in families().items()
    }


if __name__ == "__main__":
    made, text = tables(), PAGE.read_text("utf-8")
    PAGE.write_text(TABLE.sub(lambda old: MARKED.format(old["folder"], made[old["folder"]]), text), "utf-8")
