"""The import direction, read from the source with ast: one table, and what breaks it named by file and line.

A package that does not exist yet breaks nothing; one that is missing from the table does.
"""

import ast
import importlib.util
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "keras_tfm"

# Who may import whom, by folder (or file) right under the package. Every folder may import itself.
MAY_IMPORT = {
    "layers": set(),
    "word_vectors": set(),
    "data": set(),
    # serving: an export is run as it is served; data, heads: what readers and answers are in a graph;
    # training: README's mark
    "export": {"serving", "data", "heads", "training"},
    "serving": set(),  # what answers without TensorFlow
    "training": set(),
    "heads": {"layers"},
    "models": {"layers"},
    "generation": {"layers"},
    # serving: the host side of asking; training: what `fit` is made of; word_vectors: what recommends
    "tasks": {"models", "heads", "generation", "data", "serving", "training", "word_vectors"},
    "convert": {"models", "heads", "generation", "training"},  # training: folders that appear whole
    "visualize": {"layers", "tasks", "training"},  # tasks: what their models read; training: whole files
    "demo": {"tasks", "data"},  # what `keras-tfm demo` runs
    "log": set(),
    "launch": set(),  # what `keras-tfm launch` runs, without TensorFlow
}
MAY_IMPORT_ALL = {"__init__", "__main__", "cli"}

# Leaves that everybody may import: checked configurations, the model class, the batches of other replicas,
# the reading and writing of a model's weights, what all layers and models have in common, the checks of
# examples, what `predict` takes, imports at the first use, the version, and whether XLA compiles.
FOR_EVERYBODY = {
    "serving.examples",  # which examples are refused
    "serving.plugins",  # what entry points add
    "serving.image_headers",  # which image files are refused, and how they are turned
    "serving.point_files",  # which clouds of points are refused, and which of their points are chosen
    "serving.video_files",  # which frames a clip has, and how they are decoded
    "layers.boxes",  # boxes as numbers, and measures of pairs of them
    "layers.residues",  # the tables of the amino acids, of NumPy alone
    "training.model",
    "training.replicas",
    "training.safetensors",
    "training.weights",
    "asking",
    "configs",
    "inputs",
    "jit",
    "log",
    "on_demand",
    "precision",
    "private",
    "registry",
    "replaced",
    "version",
}

# Imports that stand inside a function of this name, and nowhere else.
INSIDE_FUNCTIONS = {
    ("models", "convert"): {"from_huggingface", "save_huggingface"},
    ("tasks", "convert"): {"from_huggingface", "save_huggingface"},
    ("tasks", "export"): {"export", "export_endpoints"},
}

# Where tensorflow (and tensorflow_text, tensorflow_datasets) may be imported: elsewhere keras.ops is used.
# The command line imports it so that what it logs while starting stays unseen, and to measure.
TENSORFLOW = {
    "data", "tasks", "export", "serving", "training", "generation.loop", "cli", "private",
    "layers.compiler",  # the same numbers by quicker operations
    "visualize.attribution", "visualize.receptive_field", "visualize.samples",  # gradients, graphs
    "visualize.size",  # a graph, to be counted
}  # fmt: skip

# Modules that execute what they read.
FORBIDDEN = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


class Import(NamedTuple):
    """One imported module: its dotted name, the line, the innermost function around it (or None)."""

    module: str
    line: int
    function: str | None


def module_name(path, root):
    """`root/heads/mlm.py` -> "heads.mlm"; a folder's `__init__.py` -> the folder's name."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def imports_of(path, root):
    """Every import in the file, relative ones resolved; `from a import b` gives a.b (b may be a module)."""
    package = [PACKAGE, *path.relative_to(root).parent.parts]
    found = []

    def visit(node, function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        elif isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module or "").split(".")] if node.module else base
            found.extend(Import(".".join([*base, a.name]), node.lineno, function) for a in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(path.read_text(encoding="utf-8"), str(path)), None)
    return found


def within(name, names):
    """Is the dotted `name` one of `names` or inside one?"""
    return any(name == other or name.startswith(other + ".") for other in names)


def refusal(importer, imported):
    """Why the module `importer` may not have this import; None if it may."""
    home = importer.split(".")[0]
    library = imported.module.split(".")[0]
    if library in FORBIDDEN:
        return f"{library} executes what it reads: JSON and safetensors only"
    if library.startswith("tensorflow"):
        allowed = within(importer, TENSORFLOW)
        return None if allowed else f"tensorflow stands only in {', '.join(sorted(TENSORFLOW))}"
    if library != PACKAGE:
        return None
    target = imported.module.removeprefix(PACKAGE).removeprefix(".")
    target_home = target.split(".")[0]
    if home in MAY_IMPORT_ALL or target_home == home or within(target, FOR_EVERYBODY):
        return None
    if home not in MAY_IMPORT:
        return f"{home} is not in the table of tests/test_imports.py"
    if imported.function in INSIDE_FUNCTIONS.get((home, target_home), ()):
        return None
    if target_home in MAY_IMPORT[home]:
        return None
    allowed = ", ".join(sorted(MAY_IMPORT[home] | FOR_EVERYBODY))
    return f"{home} may import only {allowed}"


def violations(path, root):
    importer = module_name(path, root)
    found = []
    for imported in imports_of(path, root):
        reason = refusal(importer, imported)
        if reason:
            found.append(f"{path.relative_to(root)}:{imported.line} imports {imported.module}: {reason}")
    return found


# Found without importing it: the installed package is what is read, be it a wheel or these sources.
ROOT = Path(importlib.util.find_spec(PACKAGE).submodule_search_locations[0])
FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file(path):
    assert violations(path, ROOT) == []


def test_every_package_is_in_the_table():
    homes = {module_name(path, ROOT).split(".")[0] for path in FILES}
    assert homes - set(MAY_IMPORT) - MAY_IMPORT_ALL - FOR_EVERYBODY == set()


def test_the_table_has_no_circle():
    depth = dict.fromkeys(MAY_IMPORT, 0)
    for _ in MAY_IMPORT:
        for home, others in MAY_IMPORT.items():
            depth[home] = max([depth[other] + 1 for other in others], default=0)
    assert max(depth.values()) < len(MAY_IMPORT)


# (file, its text, is it allowed)
CASES = [
    ("layers/a.py", "import keras; from keras_tfm.layers.masks import causal_mask", True),
    ("layers/a.py", "from .masks import causal_mask", True),
    ("layers/a.py", "from ..heads import MaskedLMHead", False),
    ("layers/a.py", "from .. import heads", False),
    ("layers/a.py", "from keras_tfm import __version__", False),
    ("layers/a.py", "import tensorflow as tf", False),
    ("layers/a.py", "def call(self): import tensorflow as tf", False),
    ("layers/__init__.py", "from .masks import causal_mask", True),
    ("layers/__init__.py", "from ..training.model import Model", True),
    ("heads/a.py", "from keras_tfm import layers", True),
    ("heads/a.py", "from keras_tfm.models import BERT", False),
    ("heads/a.py", "from keras_tfm.training.schedules import WarmupSchedule", False),
    ("models/text/a.py", "from ...layers import blocks", True),
    ("models/text/a.py", "from keras_tfm.training import model, weights", True),
    ("models/text/a.py", "from ...heads import MaskedLMHead", False),
    ("models/a.py", "from keras_tfm.convert import bert", False),
    ("models/a.py", "def from_huggingface(cls, folder): from keras_tfm.convert import bert", True),
    ("models/a.py", "def from_size(cls, name): from keras_tfm.convert import bert", False),
    ("tasks/a.py", "import tensorflow as tf; from keras_tfm.data import sources", True),
    ("tasks/a.py", "from keras_tfm.layers import FeedForward", False),
    ("tasks/a.py", "class Task:\n def export(self): from keras_tfm.export import saved_model", True),
    ("tasks/a.py", "from keras_tfm.export import saved_model", False),
    ("generation/loop.py", "import tensorflow as tf", True),
    ("generation/beam.py", "import tensorflow as tf", False),
    ("data/a.py", "import tensorflow_text", True),
    ("data/a.py", "from keras_tfm.tasks import Translator", False),
    ("data/a.py", "import pickle", False),
    ("data/a.py", "from marshal import loads", False),
    ("convert/a.py", "from keras_tfm import generation, models, heads", True),
    ("convert/a.py", "from keras_tfm import tasks", False),
    ("convert/a.py", "import keras_tfm.cli", False),
    ("cli/verbs.py", "from keras_tfm import tasks, word_vectors, visualize, __version__", True),
    ("cli/console.py", "import tensorflow", True),
    ("demo.py", "from keras_tfm.tasks import Translator; from keras_tfm.data import dates", True),
    ("demo.py", "from keras_tfm import cli", False),
    ("tasks/a.py", "from keras_tfm import demo", False),
    ("utils/a.py", "from keras_tfm import layers", False),
]


@pytest.mark.parametrize(("name", "text", "allowed"), CASES)
def test_the_rules_themselves(tmp_path, name, text, allowed):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert (violations(path, tmp_path) == []) == allowed
