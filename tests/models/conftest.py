"""What tests of models share."""

import keras
import pytest


@pytest.fixture
def no_allocation():
    """Variables have shapes here, and no values."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session(free_memory=False)  # else the next such scope would fill them in
