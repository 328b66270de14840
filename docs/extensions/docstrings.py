"""The package's docstrings, plain text with `names` in backticks, as the reStructuredText that autodoc reads.

A paragraph that begins with `Args:` or `Raises:` lists `name: text` on indented lines; one that begins with
`>>> ` is an example as the interpreter shows it.
"""

import inspect
import re

from sphinx.util.inspect import stringify_signature

SPECIAL = re.compile(r"([\\*_|])")
CODE = re.compile(r"`([^`]+)`")
FIELDS = {"Args:": "param", "Raises:": "raises"}
ITEM = re.compile(r"    (\w[^:\n]*): ")
COLUMNS = re.compile(r"\S {3,}\S")  # words set apart by blanks: a table


def as_restructured_text(lines):
    """Paragraphs of `lines` with their backticks doubled; indented ones, and tables, stay as they are set."""
    found, paragraph = [], []
    for line in [*lines, ""]:
        if line.strip():
            paragraph.append(line.rstrip())
        elif paragraph:
            found += _block(paragraph)
            paragraph = []
    return found


def _block(paragraph):
    if paragraph[0] in FIELDS:
        return [*_fields(FIELDS[paragraph[0]], paragraph[1:]), ""]
    if paragraph[0].startswith(">>> "):
        return [*paragraph, ""]
    if paragraph[0].startswith(" ") or any(map(COLUMNS.search, paragraph)):
        return ["::", "", *("    " + line for line in paragraph), ""]
    if all(line.startswith(("- ", "  ")) for line in paragraph):
        return [*map(_inline, paragraph), ""]
    return [_inline(" ".join(map(str.strip, paragraph))), ""]


def _fields(kind, lines):
    """The lines `name: text`, each of which may continue on lines indented further, as Sphinx's fields."""
    items: list = []
    for line in lines:
        if ITEM.match(line):
            items.append(line)
        else:
            items[-1] += " " + line.strip()
    split = (item.strip().partition(": ") for item in items)
    return [f":{kind} {name.strip('`')}: {_inline(text)}" for name, _, text in split]


def _inline(text):
    """What stands in backticks as code; elsewhere no sign has a meaning."""
    parts = CODE.split(text)
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = f"``{part}``"
        else:
            # A point between blanks is a product; to autosummary it would end a sentence.
            parts[i] = SPECIAL.sub(r"\\\1", part.replace(" . ", " · "))
            # Marked text stands between blanks, of which one behind a backslash is not shown.
            if i and part and not part[0].isspace():
                parts[i] = "\\ " + parts[i]
            if i + 1 < len(parts) and part and not part[-1].isspace():
                parts[i] += "\\ "
    return "".join(parts)


def process(app, what, name, obj, options, lines):
    lines[:] = as_restructured_text(lines)


def class_signature(app, what, name, obj, options, signature, returns):
    """The arguments of a class's constructor: the arguments of `__new__`, Keras's, say nothing."""
    if what != "class" or not inspect.isfunction(obj.__init__):
        return None
    _, *parameters = inspect.signature(obj.__init__).parameters.values()
    shown = inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters])
    return stringify_signature(shown), None


def setup(app):
    app.connect("autodoc-process-signature", class_signature)
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
