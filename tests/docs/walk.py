"""A guide followed to the letter, from an empty file: what its page shows is written, and its commands run.

A block whose first line is a comment with a path, `# mine/host.py`, is that file, whole. A block of the
language `diff` changes the files that its lines `--- PATH` name: the lines that begin with a space or a minus
stand there once, in this order, and become the lines that begin with a space or a plus; `@@` begins another
place. Blocks of the language `sh`, or of none, are commands, which bash runs in the folder.
"""

import os
import re
import shutil
import subprocess
import sys

from tests.docs.pages import ROOT, blocks

FILE = re.compile(r"# (?P<path>[\w./-]+\.(?:py|toml|txt))\n")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "_build", "parity", "golden")
# What stands for an installation that needs a network: `pip install -e .` without looking for what is needed.
PIP = "exec {python} -m pip install -q --no-deps --no-build-isolation --target site ."
SCRIPTS = {
    "python": "exec {python} \"$@\"",
    "keras-tfm": "exec {python} -m keras_tfm \"$@\"",
    "ruff": "exec {python} -m ruff \"$@\"",
    "pip": PIP,
}  # fmt: skip


def activate(folder):
    """The environment of commands in `folder`, whose .venv/bin has what `make setup` puts there."""
    scripts = folder / ".venv" / "bin"
    scripts.mkdir(parents=True)
    for name, script in SCRIPTS.items():
        (scripts / name).write_text(f"#!/bin/sh\n{script.format(python=sys.executable)}\n", "utf-8")
        (scripts / name).chmod(0o755)
    paths = f"{scripts}{os.pathsep}{os.environ['PATH']}", os.pathsep.join([str(folder), "site", str(ROOT)])
    return os.environ | dict(zip(("PATH", "PYTHONPATH"), paths, strict=True))


def copy_repository(folder):
    """A copy of this repository in `folder`, without what no guide needs."""
    for name in ("keras_tfm", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=LEFT_OUT)
    for name in ("pyproject.toml", "setup.py", "constraints.txt", "Makefile", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)


def walk(page, folder):
    """Write all that `page` shows into `folder`, and run its commands there; what they print."""
    environment, printed = activate(folder), []
    for block in blocks(page):
        if file := FILE.match(block.code):
            path = folder / file["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, "utf-8")
        elif block.language == "diff":
            change(block.code, folder)
        elif block.language in ("", "sh") and block.why is None:
            (folder / ".venv" / ".setup-stamp").touch()  # `make setup` has nothing to do
            command = ["bash", "-e", "-c", block.code]
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert done.returncode == 0, f"{block.code}\n{done.stdout[-4000:]}"
            printed.append(done.stdout)
    return "".join(printed)


def change(code, folder):
    """Change files as the block of the language `diff` says."""
    for part in re.split(r"^--- ", code, flags=re.MULTILINE)[1:]:
        name, _, lines = part.partition("\n")
        for place in re.split(r"^@@.*\n", lines, flags=re.MULTILINE):
            before, after = (
                "".join(f"{line[1:]}\n" for line in place.splitlines() if line[:1] in sides)
                for sides in ({" ", "-"}, {" ", "+"})
            )
            text = (folder / name).read_text("utf-8")
            assert f"\n{text}".count(f"\n{before}") == 1, f"{name} has not this once:\n{before}"
            (folder / name).write_text(f"\n{text}".replace(f"\n{before}", f"\n{after}")[1:], "utf-8")
