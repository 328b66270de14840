"""ImageGPT: the contract, the published sizes, whole pictures and halves, the palette."""

import json

import numpy as np
import pytest

from keras_tfm.convert import CheckpointError, palette_of
from keras_tfm.generation import Decoder, Sample, TopK
from keras_tfm.heads import LanguageModel
from keras_tfm.models import ImageGPT, ImageGPTConfig, Palette
from tests import contract
from tests.contract import Case, ids, mask, randomise

TINY = ImageGPTConfig(11, max_length=12, num_layers=1, dim=6, num_heads=2)
INPUTS = {"token_ids": ids("T", 11), "padding_mask": mask("T"), "segment_ids": ids("T", 1)}


def start(model, inputs, max_length):
    return model.start(len(inputs["token_ids"]), max_length)


test_contract = contract.check_family(
    Case("ImageGPT", lambda: ImageGPT(TINY), INPUTS, attends=True, causal="T", left_padding="T", cache=start)
)


# As transformers counts its language models of the published configurations.
@pytest.mark.parametrize(("size", "expected"), [("S", 76_682_240), ("M", 455_489_536)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = LanguageModel(ImageGPT.from_size(size))
    assert contract.num_parameters(model.trainable_weights) == expected


@pytest.fixture(scope="module")
def model():
    model = LanguageModel(ImageGPT(TINY))
    randomise(model, 1)
    return model


def test_the_token_that_begins_is_not_predicted(model):
    assert model.output.shape == (None, None, 10) and model.backbone.start_id == 10


def test_whole_pictures_and_halves(model):
    """All pixels are written though the beginning takes the place of one; a half stays as it is."""
    begin = np.full((3, 1), model.backbone.start_id)
    sample = Sample(seed=3)
    pictures = np.asarray(Decoder(model, 12, sampler=sample, processors=[TopK(4)])(begin))[:, 1:]
    assert pictures.shape == (3, 12) and pictures.max() < 10
    assert len({tuple(picture) for picture in pictures.tolist()}) == 3
    halves = np.concatenate([begin, pictures[:, :6]], axis=1)
    completed = np.asarray(Decoder(model, 6)(halves))
    np.testing.assert_array_equal(completed[:, :7], halves)
    expected = halves
    for _ in range(6):
        logits = np.asarray(model({"token_ids": expected}))[:, -1]
        expected = np.concatenate([expected, logits.argmax(-1)[:, None]], axis=1)
    np.testing.assert_array_equal(completed, expected)
    with pytest.raises(ValueError, match="The decoder has positions for 12 tokens; 14 are asked for"):
        Decoder(model, 13)(begin)


def test_palette():
    rng = np.random.default_rng(0)
    palette = Palette(rng.uniform(-1, 1, (9, 3)))
    images = rng.uniform(size=(2, 3, 4, 3)).astype("float32")
    numbers = np.asarray(palette.encode(images))
    distances = np.linalg.norm((2 * images - 1)[..., None, :] - palette.colors, axis=-1)
    np.testing.assert_array_equal(numbers, distances.argmin(-1).reshape(2, 12))
    made = palette.decode(numbers, height=3)
    assert made.shape == images.shape
    np.testing.assert_allclose(made[0, 1, 2], (palette.colors[numbers[0, 6]] + 1) / 2, atol=1e-6)
    np.testing.assert_array_equal(palette.encode(made), numbers)
    with pytest.raises(ValueError, match=r"`token_ids` must lie in \[0, 9\); one of them is 9"):
        palette.decode(np.array([[0, 9]]), 1)
    with pytest.raises(ValueError, match=r"`colors` must have the shape \(K, 3\); it is \(2, 2\)"):
        Palette(np.zeros((2, 2)))


def test_the_palette_of_a_folder(tmp_path):
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"clusters": [[-1, 0, 0.5], [1, 1, 1]]}))
    np.testing.assert_array_equal(palette_of(tmp_path).colors, np.array([[-1, 0, 0.5], [1, 1, 1]], "float32"))
    for wrong in (None, [], [[0, 0]], [[0, 0, 2]], [[0, 0, "x"]], [[0, 0, float("nan")]]):
        file.write_text(json.dumps({"clusters": wrong}))
        with pytest.raises(CheckpointError, match="clusters"):
            palette_of(tmp_path)
