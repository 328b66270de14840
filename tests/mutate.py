"""Faults of one operator or number, drawn by a seed, each against the tests that mirror its file.

    python -m tests.mutate --count 100 --seed 1 heads layers/attention generation training/exact.py

Each fault goes into a copy of the package, never into the sources, and the mirrored tests run there until one
fails: of keras_tfm/heads/boxes.py those of tests/heads, its own file first. A fault that no test notices is
printed with its line: write the test, or see that the fault changes nothing. Half a minute to minutes each.
"""

import argparse
import ast
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
PATHS = ("heads", "layers/attention", "generation", "training/exact.py", "training/checkpoint.py")
SELECTION = "not slow and not parity"
SECONDS = 900  # a fault may loop for ever, which is noticed too
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", default=PATHS, help="files or folders of keras_tfm/")
    parser.add_argument("--count", type=int, default=20, help="faults (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which faults are drawn (default: %(default)s)")
    options = parser.parse_args()
    given = [ROOT / "keras_tfm" / path for path in options.paths]
    files = sorted(f for path in given for f in ([path] if path.is_file() else path.rglob("*.py")))
    places = [(file, number) for file in files for number in range(len(faults(file)))]
    drawn = random.Random(options.seed).sample(places, min(options.count, len(places)))
    survivors = 0
    for file, number in drawn:
        began = time.monotonic()
        text, place = faulty(file, number)
        is_noticed = not passes(file, text)
        survivors += not is_noticed
        word = "noticed " if is_noticed else "SURVIVES"
        print(f"{word} {time.monotonic() - began:4.0f} s  {file.relative_to(ROOT)}:{place}", flush=True)
    print(f"{len(drawn) - survivors} of {len(drawn)} faults noticed (seed {options.seed})")


def faults(file):
    """The nodes of the file's syntax tree that can be wrong in one token, in the order of the file."""
    return [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if is_changeable(node)]


def is_changeable(node):
    match node:
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) | ast.Compare(ops=[operator]):
            return type(operator) in OPERATORS
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            return True
        case ast.Constant(value=bool() | int() | float()):
            return True
    return False


def faulty(file, number):
    """(The file's text with fault `number`, its line and the expression before and after.)"""
    tree = ast.parse(file.read_text("utf-8"))
    node = [node for node in ast.walk(tree) if is_changeable(node)][number]
    before = ast.unparse(node)
    match node:
        case ast.BinOp() | ast.BoolOp():
            node.op = OPERATORS[type(node.op)]()
        case ast.Compare():
            node.ops = [OPERATORS[type(node.ops[0])]()]
        case ast.UnaryOp(op=ast.USub()):
            node.op = ast.UAdd()
        case ast.UnaryOp():
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant():
            node.value += 1
    return ast.unparse(tree), f"{node.lineno}  {before}  ->  {ast.unparse(node)}"


def passes(file, text):
    """Whether the mirrored tests pass on a copy of the package where `file` has this `text`."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("keras_tfm", "tests", "docs", "examples"):
            shutil.copytree(
                ROOT / name, f"{folder}/{name}", ignore=shutil.ignore_patterns("__pycache__", "_build")
            )
        for name in ("pyproject.toml", "README.md", "setup.py"):
            shutil.copy(ROOT / name, folder)
        pathlib.Path(folder, file.relative_to(ROOT)).write_text(text, "utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", SELECTION, *mirrored(file)]
        try:
            done = subprocess.run(
                command, cwd=folder, env={**os.environ, "PYTHONPATH": folder}, capture_output=True,
                timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def mirrored(file):
    """The test files for `file`, its own first; a folder without tests is tested with the one above it."""
    folder = file.relative_to(ROOT / "keras_tfm").parent
    while not (ROOT / "tests" / folder).is_dir():
        folder = folder.parent
    tests = sorted(
        (ROOT / "tests" / folder).glob("test_*.py"), key=lambda path: (file.stem not in path.stem, path)
    )
    return [str(path.relative_to(ROOT)) for path in tests]


if __name__ == "__main__":
    main()
