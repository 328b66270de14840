"""Faults of one operator or number, drawn by a seed, each against the tests that mirror its file.

    python -m tests.mutate --count 100 --seed 1 heads layers/attention generation training/exact.py

Each fault goes into a copy of the package, never into the sources, and the mirrored tests run there until one
fails: for keras_tfm/heads/matching.py the files of tests/heads that name what it defines.
A fault that no test notices is printed with its line: write the test, or see that the fault changes nothing.
Seconds to minutes each; `--start` goes on with the same list where an earlier run ended. Forked processes run
the tests: they need not import TensorFlow, which takes ten seconds.
"""

import argparse
import ast
import importlib
import multiprocessing
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PATHS = ("heads", "layers/attention", "generation", "training/exact.py", "training/checkpoint.py")
SELECTION = "not slow and not parity"
SECONDS = 900  # of CPU time: a fault may loop for ever, which is noticed too
WAIT = 4 * SECONDS  # on the clock: it may wait for ever
LARGE = 1000  # numbers that one more would hardly change
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
    parser.add_argument(
        "--start", type=int, default=1, help="the first of them to make (default: %(default)s)"
    )
    options = parser.parse_args()
    given = [ROOT / "keras_tfm" / path for path in options.paths]
    files = sorted(f for path in given for f in ([path] if path.is_file() else path.rglob("*.py")))
    places = [(file, number) for file in files for number in range(len(faults(parsed(file))))]
    drawn = random.Random(options.seed).sample(places, min(options.count, len(places)))
    made = list(enumerate(drawn, 1))[options.start - 1 :]
    survivors = 0
    for name in ("tensorflow", "keras"):
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        copy_sources(folder)
        if not passes(mirrored(drawn[0][0])[:1], folder):
            raise SystemExit("Tests fail without a fault: there is nothing to compare with.")
        for index, (file, number) in made:
            began = time.monotonic()
            text, place = faulty(file, number)
            copy = pathlib.Path(folder, file.relative_to(ROOT))
            copy.write_text(text, "utf-8")
            is_noticed = not passes(mirrored(file), folder)
            shutil.copy(file, copy)
            survivors += not is_noticed
            word = "noticed " if is_noticed else "SURVIVES"
            took = f"{time.monotonic() - began:4.0f} s"
            print(f"{index:4} {word} {took}  {file.relative_to(ROOT)}:{place}", flush=True)
    print(f"{len(made) - survivors} of {len(made)} faults noticed (seed {options.seed})")


def parsed(file):
    """The syntax tree of the `file`."""
    return ast.parse(file.read_text("utf-8"))


def faults(node):
    """The nodes of a syntax tree that can be wrong in one token, without error messages."""
    if isinstance(node, ast.Raise):
        return []
    nodes = [fault for child in ast.iter_child_nodes(node) for fault in faults(child)]
    return [node, *nodes] if is_changeable(node) else nodes


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
    tree = parsed(file)
    node = faults(tree)[number]
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
            node.value = -node.value if node.value > LARGE else node.value + 1
    return ast.unparse(tree), f"{node.lineno}  {before}  ->  {ast.unparse(node)}"


def copy_sources(folder):
    """What the tests need, into the `folder`."""
    for name in ("keras_tfm", "tests", "docs", "examples"):
        shutil.copytree(
            ROOT / name, f"{folder}/{name}", ignore=shutil.ignore_patterns("__pycache__", "_build")
        )
    for name in ("pyproject.toml", "README.md", "setup.py"):
        shutil.copy(ROOT / name, folder)


def passes(tests, folder):
    """Whether the files `tests` pass on the copy of the package in the `folder`."""
    process = multiprocessing.get_context("fork").Process(target=run_tests, args=(tests, folder))
    process.start()
    try:
        process.join(WAIT)
    finally:
        if process.exitcode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
    return process.exitcode == 0


def run_tests(tests, folder):
    """Run the files `tests` in the `folder` until one fails, and end this process with pytest's code."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    os.chdir(folder)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    os.environ |= {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": ""}
    sys.dont_write_bytecode = False
    sys.path[:] = [folder, *(path for path in sys.path if path not in ("", str(ROOT)))]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "keras_tfm")]:
        del sys.modules[name]
    sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", SELECTION, *tests]))


def mirrored(file):
    """The test files for `file`: in its folder the files that are called like it or name what it defines,
    else the models' files that do, else the whole folder. A folder without tests is tested with the one above
    it.
    """
    folder = file.relative_to(ROOT / "keras_tfm").parent
    while not (ROOT / "tests" / folder).is_dir():
        folder = folder.parent
    names = [node.name for node in parsed(file).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    defined = re.compile(rf"\b({'|'.join(names)})\b(?!=)")

    def place(path):
        subject, count = path.stem.removeprefix("test_"), len(defined.findall(path.read_text("utf-8")))
        is_alike = subject in file.stem or file.stem in subject
        return not is_alike, -count, path

    own, models = ((ROOT / "tests" / name).rglob("test_*.py") for name in (folder, "models"))
    own, models = (sorted(place(path) for path in paths) for paths in (own, models))
    tests = [path for is_other, count, path in own if count or not is_other]
    tests = tests or [path for is_other, count, path in models if count or not is_other]
    return [str(path.relative_to(ROOT)) for path in tests or [path for *_, path in own]]


if __name__ == "__main__":
    main()
