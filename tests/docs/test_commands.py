"""The commands in README, docs/ and the examples: they are ones that `keras-tfm` knows."""

import pathlib
import re
import shlex

import pytest

from keras_tfm.cli import parser

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(path for place in ("*", "book/*", "guides/*") for path in (ROOT / "docs").glob(f"{place}.md")),
    *(ROOT / "examples").glob("*.py"),
]
pytestmark = pytest.mark.skipif(not PAGES[0].exists(), reason="the pages are not part of the wheel")
# Pages that write a task first, which is not installed here: test_walks.py runs their commands.
WRITING_TASKS = "outside.md", "add_a_task.md"
UNFINISHED = re.compile(r"…|\$|\[|\bVERB\b")  # abbreviated, or made by a shell


def commands(path):
    """What follows `keras-tfm` at the beginnings of lines, or behind a pipe, comments apart."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    for line in re.findall(r"^(?:.*\| )?[ ]*keras-tfm (.*)$", text, re.MULTILINE):
        if not UNFINISHED.search(line):
            yield shlex.split(line, comments=True)


FOUND = [
    (path.name, words)
    for path in PAGES
    if path.exists() and path.name not in WRITING_TASKS
    for words in commands(path)
]


def test_commands_are_found():
    assert len(FOUND) > 20 and {words[0] for _, words in FOUND} >= {"train", "evaluate", "predict", "export"}


@pytest.mark.parametrize(
    ("page", "words"), FOUND, ids=lambda x: " ".join(x[:3]) if isinstance(x, list) else x
)
def test_a_command_is_known(page, words):
    parsed = parser().parse_args(words)
    assert parsed.verb == words[0]
    if parsed.verb == "launch":
        parser().parse_args(parsed.command[1:])
