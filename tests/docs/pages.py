"""The code on the pages of docs/, and what runs it: all blocks of a page, in their order.

Python runs statement by statement in one namespace. Where a comment behind a statement begins with a value
or names shapes, `x.shape  # (2, 7)`, they are compared with what came of it. `keras-tfm` runs through its
`main`, in blocks without a language; output is a block of the language `text`. A block behind the line
`<!-- not run: why -->` is left out, and counted.

Sybil would collect each block as a test of its own, from files beside tests/, which `make test-wheel`
leaves behind and `tests.run` does not deal out; the commands and the comments would need parsers of ours
all the same.
"""

import ast
import importlib.util
import io
import pathlib
import re
import shlex
import sys
from typing import NamedTuple

import numpy as np

from keras_tfm.cli import main

ROOT = pathlib.Path(__file__).parents[2]
# Pages whose Python takes the reader's files and RUNs as given: test_readme.py has tiny stand-ins for them.
STAND_IN_PAGES = tuple(
    f"docs/guides/{name}.md" for name in ("text", "images_and_words", "see_inside", "word_vectors")
)
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]*) -->\n\n?)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SHAPE = re.compile(r"\((?:\d+, ?)+\d*\)")
LITERAL = re.compile(r'b?"[^"]*"|\[.*\]|\((?:True|False).*\)|\{.*\}')
NUMBER = re.compile(r"-?\d{1,3}(?:,\d{3})*(?:\.\d+)?(?![\w.])")


def module(path):
    """The module in a file of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class Block(NamedTuple):
    """A block of code: its language, what is in it, and why it is not run."""

    language: str
    code: str
    why: str | None


def blocks(page):
    """The blocks of a page, a path, in their order."""
    found = BLOCK.finditer(page.read_text("utf-8"))
    return [Block(block["language"], block["code"], block["why"]) for block in found]


def run(page):
    """What the page's code leaves in its variables."""
    variables = {"__name__": page.stem}
    for block in blocks(page):
        if block.why is not None or block.code.startswith("# tests/"):  # which walk.py runs, as pytest does
            continue
        if block.language == "python":
            run_python(block.code, variables, page.name)
        elif block.language == "json":
            pathlib.Path("small.json").write_text(block.code, "utf-8")
        elif block.language == "":
            for line in block.code.splitlines():
                run_line(line)
    return variables


def run_python(code, variables, name):
    """Execute `code`, and compare values with the comments behind its statements."""
    lines = code.splitlines()
    for node in ast.parse(code).body:
        comment = (
            lines[node.end_lineno - 1].rpartition("  # ")[2] if "  # " in lines[node.end_lineno - 1] else ""
        )
        if isinstance(node, ast.Expr):
            value = eval(compile(ast.Expression(node.value), name, "eval"), variables)
        else:
            exec(compile(ast.Module([node], []), name, "exec"), variables)
            if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
                continue
            value = variables[node.targets[0].id]
        compare(value, comment, f"{name}: {lines[node.end_lineno - 1]}")


def compare(value, comment, place):
    """Assert what a comment says of a value, if it does: shapes in order, True, a number or a literal."""
    if shapes := SHAPE.findall(comment):
        parts = value if isinstance(value, tuple) and not all(isinstance(x, int) for x in value) else (value,)
        found = [tuple(getattr(part, "shape", part)) for part in parts]
        assert found == [ast.literal_eval(shape) for shape in shapes][: len(found)], place
    elif comment.startswith("True"):
        assert value, place
    elif literal := LITERAL.match(comment):
        assert value == ast.literal_eval(literal[0]), place
    elif number := NUMBER.match(comment):
        np.testing.assert_allclose(value, float(number[0].replace(",", "")), atol=1e-6, err_msg=place)


def run_line(line):
    """A line of a shell: keras-tfm, alone or fed by an echo."""
    *before, command = line.split(" | ")
    program, *words = shlex.split(command, comments=True)
    assert program == "keras-tfm", line
    if not before:
        return main(words)
    echo, text = shlex.split(before[0])
    assert echo == "echo", line
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode() + b"\n"))
    try:
        return main(words)
    finally:
        sys.stdin = stdin
