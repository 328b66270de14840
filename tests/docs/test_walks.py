"""The guides on adding something, followed to the letter by tests/docs/walk.py."""

import shutil

import pytest

from tests.docs.pages import ROOT
from tests.docs.walk import change, copy_repository, walk

GUIDES = ROOT / "docs" / "guides"
pytestmark = pytest.mark.skipif(
    not (GUIDES.exists() and shutil.which("make") and shutil.which("bash")),
    reason="the pages are not part of the wheel, or a tool is missing",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["add_a_layer", "add_a_family", "add_a_task", "add_a_format"])
def test_a_guide_of_this_repository_is_walked(name, tmp_path):
    copy_repository(tmp_path)
    walk(GUIDES / f"{name}.md", tmp_path)


@pytest.mark.slow
def test_the_guide_outside_the_package_is_walked(tmp_path):
    printed = walk(GUIDES / "outside.md", tmp_path)
    assert "\nup\n" in printed and "plugins" in (tmp_path / "exported/shapes/serving.json").read_text("utf-8")


def test_a_change_finds_its_place_once(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("one\ntwo\none\n")
    change("--- a.py\n two\n-one\n+three\n", tmp_path)
    assert file.read_text() == "one\ntwo\nthree\n"
    change("--- a.py\n-one\n@@\n three\n+four\n", tmp_path)
    assert file.read_text() == "two\nthree\nfour\n"
    for code in ("--- a.py\n-wo\n+x\n", "--- a.py\n-five\n"):
        with pytest.raises(AssertionError, match="has not this once"):
            change(code, tmp_path)
