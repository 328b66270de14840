"""What tests of word vectors share."""

import pytest

from keras_tfm.word_vectors import compiled


@pytest.fixture(params=["numba", "numpy"])
def engine(request, monkeypatch):
    """With Numba, and as if it were not installed."""
    if request.param == "numba":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(compiled, "compiled", lambda function, **options: None)
    return request.param
