"""From which positions each block's output is made: all, those before, a window, more with every block."""

import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.models import Swin
from keras_tfm.visualize import receptive_field
from tests.visualize.test_look import classifier, translator


def test_one_layer_of_an_encoder_reaches_from_everywhere_to_everywhere():
    (reach,) = receptive_field(classifier(num_heads=2), "the cat sat")["encoder"]
    assert reach.shape == (5, 5) and (reach > 0).all()


def test_a_decoder_reads_what_stands_before():
    task = tasks.TextGenerator.from_texts(
        ["the cat sat"], tokenizer="characters", max_length=12, num_layers=2, dim=8, num_heads=2
    )
    for reach in receptive_field(task, "the", " cat")["decoder"]:
        np.testing.assert_array_equal(reach > 0, np.tril(np.ones((7, 7), bool)))


def test_both_sides_of_a_translator():
    task = translator(num_layers=1, num_heads=2, intermediate_dim=16)
    reach = receptive_field(task, "the cat", "le chat")
    assert {name: len(layers) for name, layers in reach.items()} == {"encoder": 1, "decoder": 1}
    assert (reach["encoder"][0] > 0).all() and (np.triu(reach["decoder"][0], 1) == 0).all()


def test_windows_grow_together_where_they_are_shifted():
    """8 x 8 cells in windows of 4 x 4: one block sees a window, with the shifted one all windows around."""
    sizes = {"image_size": 16, "patch_size": 2, "dim": 8, "depths": (2,), "num_heads": (2,), "window": 4}
    task = tasks.ImageEncoder(Swin.from_size("T", **sizes))
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype("uint8")
    first, second = receptive_field(task, image)["encoder"]
    window = np.add.outer(np.arange(8) // 4 * 2, np.arange(8) // 4).ravel()
    np.testing.assert_array_equal(first > 0, window[:, None] == window)
    middle, corner = 3 * 8 + 3, 0
    assert (second[middle] > 0).all()  # its shifted window holds cells of all four
    np.testing.assert_array_equal(second[corner] > 0, window == 0)


def test_the_seed_draws_the_direction():
    task = classifier(num_heads=2)
    once, again = (receptive_field(task, "the cat", seed=seed)["encoder"][0] for seed in (0, 1))
    assert once.shape == again.shape and not np.allclose(once, again)
    np.testing.assert_array_equal(once, receptive_field(task, "the cat")["encoder"][0])


def test_what_reads_neither_texts_nor_images():
    ratings = tasks.Recommender.from_ratings((["a", "b"], ["x", "y"], [1.0, 2.0]), dim=1)
    with pytest.raises(ValueError, match="'recommend' reads neither"):
        receptive_field(ratings, "a")
