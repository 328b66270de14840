"""What the tests of the page share: a small translator, its page, and a browser."""

import pytest

from keras_tfm import tasks
from keras_tfm.visualize import attention_page
from tests import contract
from tests.visualize.browser import headless

PAIRS = (["the cat sat", "the dog ran", "a cat"], ["le chat", "le chien", "un chat"])


@pytest.fixture(scope="package")
def translator():
    task = tasks.Translator.from_pairs(PAIRS, size="tiny", max_length=16, dim=16, num_heads=2, num_layers=2)
    contract.randomise(task.model, seed=3)
    return task


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    """The RUN of the translator, and the pages that are made."""
    path = tmp_path_factory.mktemp("pages")
    translator.save(path / "run")
    return path


@pytest.fixture(scope="module")
def browser():
    with headless() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(translator):
    return attention_page(translator, "the cat sat", max_new_tokens=6)


@pytest.fixture(scope="module")
def address(page, folder):
    page.write(folder / "page.html")
    return (folder / "page.html").as_uri()
