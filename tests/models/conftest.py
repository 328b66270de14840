"""What tests of models share."""

import pathlib

import keras
import pytest

FOLDER = pathlib.Path(__file__).parent


@pytest.fixture
def no_allocation():
    """Variables have shapes here, and no values."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session(free_memory=False)  # else the next such scope would fill them in


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    """A model of a published size takes seconds to make: of a test's sizes all but the first are slow."""
    for item in items:
        if item.path.parent == FOLDER and "no_allocation" in item.fixturenames:
            parameters = getattr(item, "callspec", None)
            if parameters and "size" in parameters.params and any(parameters.indices.values()):
                item.add_marker(pytest.mark.slow)
