"""What tests of models share."""

import pathlib

import pytest

from keras_tfm.private.keras import shapes_alone

FOLDER = pathlib.Path(__file__).parent


@pytest.fixture
def no_allocation():
    """Variables have shapes here, and no values. Names go on: a model of a fixture may get a head later."""
    with shapes_alone():
        yield


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    """A model of a published size takes seconds to make: of a test's sizes all but the first are slow."""
    for item in items:
        if item.path.parent == FOLDER and "no_allocation" in item.fixturenames:
            parameters = getattr(item, "callspec", None)
            if parameters and "size" in parameters.params and any(parameters.indices.values()):
                item.add_marker(pytest.mark.slow)
