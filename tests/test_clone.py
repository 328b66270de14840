"""An editable install of a clone: scripts beside its folder import the package, whatever its name."""

import importlib.metadata
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_editable(sys.argv[1]))"
# As Python starts where only the clone is installed: the packages of this environment without .pth files.
BEGIN = """
import runpy, site, sys
beside, installed, packages, script = sys.argv[1:]
sys.path[:] = [beside, *[path for path in sys.path if path], packages]
site.addsitedir(installed)
runpy.run_path(script)
"""

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").is_file(), reason="needs the source tree")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with a clone called keras_tfm in it, and what its editable install puts into site-packages."""
    beside, installed = tmp_path_factory.mktemp("beside"), tmp_path_factory.mktemp("installed")
    clone = beside / "keras_tfm"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "keras_tfm", clone / "keras_tfm", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    command = [sys.executable, "-c", BUILD, installed]
    built = subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (wheel,) = installed.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(installed)
    return beside, installed


@pytest.mark.parametrize(
    "line",
    [
        "from keras_tfm.version import __version__",
        "import keras_tfm; keras_tfm.serving",
        pytest.param("import keras_tfm; keras_tfm.Model", marks=pytest.mark.slow),  # imports TensorFlow
    ],
)
def test_a_script_beside_the_clone_imports_the_package(line, installed, tmp_path):
    beside, packages = installed
    script = beside / "script.py"
    script.write_text(f"{line}\nimport keras_tfm\nprint(keras_tfm.__file__)\n")
    others = sysconfig.get_paths()["purelib"]
    command = [sys.executable, "-S", "-c", BEGIN, beside, packages, others, script]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, cwd=beside, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(beside / "keras_tfm" / "keras_tfm" / "__init__.py")


def test_examples_bring_no_torch(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["setup.py", "--version"])
    monkeypatch.chdir(ROOT)
    left, needed = list(runpy.run_path("setup.py")["EXAMPLES"]), set()
    while left:
        requirement, _, marker = left.pop().partition(";")
        name = re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")
        if "extra" not in marker and name not in needed:
            needed.add(name)
            left += importlib.metadata.requires(name) or []  # raises for what `make setup` does not install
    assert "matplotlib" in needed and "torch" not in needed
