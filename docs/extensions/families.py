"""The tables of docs/models.md, made from the code: `python docs/extensions/families.py` writes them anew.

What a family is and whose paper it follows is the first sentence of its file.
"""

import importlib
import re
from pathlib import Path

from keras_tfm import models
from keras_tfm.convert import huggingface, timm
from keras_tfm.on_demand import all_of

PAGE = Path(__file__).parents[1] / "models.md"
TABLE = re.compile(r"<!-- families: (?P<folder>\w+) -->\n(?P<rows>.*?)<!-- end -->", re.DOTALL)
MARKED = "<!-- families: {} -->\n{}<!-- end -->"
HEADER = "| model | what it is | sizes | folders of |\n|---|---|---|---|\n"
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


def tables():
    """{folder of keras_tfm/models: the Markdown of its table}."""
    read = readers()
    return {
        folder: HEADER
        + "".join(
            f"| `{name}` | {first_sentence(family)} | {sizes_of(family)} | "
            f"{', '.join(library for library in read if family in read[library]) or '-'} |\n"
            for name, family in members.items()
        )
        for folder, members in families().items()
    }


if __name__ == "__main__":
    made, text = tables(), PAGE.read_text("utf-8")
    PAGE.write_text(TABLE.sub(lambda old: MARKED.format(old["folder"], made[old["folder"]]), text), "utf-8")
