"""Grids written in a sliding window: the decoding loop's tokens where it is the grid, by hand where not."""

import numpy as np
import pytest

from keras_tfm.generation import Decoder, Sample, Suppress, write_grid
from keras_tfm.heads import LanguageModel
from keras_tfm.models import GPT2, GPT2Config
from tests.contract import randomise

PROMPT = np.array([[9], [8]])  # classes behind eight codes
CODES = [Suppress([8, 9])]


@pytest.fixture(scope="module")
def model():
    model = LanguageModel(GPT2(GPT2Config(10, 12, num_layers=1, dim=8, num_heads=2)), tied=False)
    randomise(model, 1)
    return model


def test_a_window_of_the_whole_grid_is_the_decoding_loop(model):
    for sampler in (Sample(seed=3), None):
        options = {"processors": CODES} | ({} if sampler is None else {"sampler": sampler})
        expected = np.asarray(Decoder(model, 6, **options)(PROMPT))[:, 1:].reshape(2, 2, 3)
        np.testing.assert_array_equal(write_grid(model, PROMPT, (2, 3), (2, 3), **options), expected)


def test_a_window_slides(model):
    """Each token is the likeliest behind what a window of 3 x 3 around it has before it."""
    tokens = write_grid(model, PROMPT, (4, 5), (3, 3), processors=CODES)
    assert tokens.max() < 8
    tops, lefts = [0, 0, 1, 1], [0, 0, 1, 2, 2]
    for row, column in np.ndindex(4, 5):
        top, left = tops[row], lefts[column]
        window = tokens[:, top : top + 3, left : left + 3].reshape(2, 9)
        before = window[:, : (row - top) * 3 + column - left]
        logits = np.asarray(model({"token_ids": np.concatenate([PROMPT, before], axis=1)}))[:, -1, :8]
        np.testing.assert_array_equal(tokens[:, row, column], logits.argmax(-1))


def test_refusals(model):
    with pytest.raises(ValueError, match=r"`window` must lie in the `grid` of 4 x 2; it is \(3, 3\)"):
        write_grid(model, PROMPT, (4, 2), (3, 3))
