"""What README and the guide to the packages say is there."""

import importlib.util
import pathlib
import re

import pytest

from keras_tfm.tasks.task import each_task

README = pathlib.Path(__file__).parents[2] / "README.md"
PACKAGES = README.parent / "docs" / "guides" / "packages.md"


@pytest.mark.skipif(not README.exists(), reason="needs the source tree")
def test_pages_name_every_task_and_nothing_that_is_not():
    text = README.read_text("utf-8") + PACKAGES.read_text("utf-8")
    rows = dict(re.findall(r"^\| `(keras_tfm\.\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert len(rows) >= 8
    for task in each_task():
        assert f"`{task.__name__}`" in rows["keras_tfm.tasks"]
    for package in rows:
        importlib.import_module(package)
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for module, names in re.findall(r"^from (keras_tfm\S*) import (.*)$", code, re.MULTILINE):
            for name in names.split(", "):
                found = hasattr(importlib.import_module(module), name)
                # As `from` does: a module of the package counts though nothing has imported it yet.
                assert found or importlib.util.find_spec(f"{module}.{name}"), (module, name)
