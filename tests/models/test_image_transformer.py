"""Image Transformer: the contract, who sees whom, blocks as long as the picture, decoding."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.generation import Decoder
from keras_tfm.heads import LanguageModel
from keras_tfm.layers import Attention, PatternAttention
from keras_tfm.models import ImageTransformer, ImageTransformerConfig
from tests import contract
from tests.contract import Case, ids, randomise

TINY = ImageTransformerConfig(
    (3, 2), 2, num_layers=1, dim=8, num_heads=2, intermediate_dim=12, block_length=3, dropout=0.1
)
TILES = dataclasses.replace(TINY, attention="tile", tile=(2, 2), margin=(1, 1))
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 3, 2, 2))


def start(model, inputs, max_length):
    return model.start(len(inputs["token_ids"]), max_length)


test_contract = contract.check_family(
    *(
        Case(
            config.attention,
            lambda config=config: ImageTransformer(config),
            {"token_ids": ids("T", 257)},
            attends=True,
            causal="T",
            cache=start,
        )
        for config in (TINY, TILES)
    )
)


def model_of(config):
    model = LanguageModel(ImageTransformer(config))
    randomise(model, 1)
    return model


def test_number_of_weights(no_allocation):
    """By hand: a table of each channel, rows and columns; blocks; the head."""
    config = ImageTransformer.sizes["CIFAR-10"]
    model = LanguageModel(ImageTransformer(config))
    dim, wide = 512, 2048
    block = 4 * (dim**2 + dim) + 2 * dim * wide + wide + dim + 4 * dim
    expected = (3 * 256 + 1 + 32 + 32) * dim + 12 * block + 256 * dim
    assert contract.num_parameters(model.trainable_weights) == expected


def test_images_and_tokens():
    model = ImageTransformer(TINY)
    tokens = np.asarray(model.tokens_of(IMAGES.astype("uint8")))
    assert tokens.shape == (2, 13) and (tokens[:, 0] == 256).all()
    np.testing.assert_array_equal(tokens[:, 1:3], IMAGES[:, 0, 0])
    np.testing.assert_array_equal(model.images_of(tokens), IMAGES)
    with pytest.raises(ValueError, match=r"`images` must lie in \[0, 256\); one of them is 256"):
        model.tokens_of(IMAGES * 0 + 256)


@pytest.mark.parametrize("config", [TINY, TILES])
def test_no_gradient_from_later_channels(config):
    """One block: the state at a position depends on the embeddings that its pattern allows, on no other."""
    model = ImageTransformer(config)
    randomise(model, 1)
    block = model.blocks["decoder"][0]
    x = tf.constant(np.random.default_rng(0).normal(size=(1, 12, 8)).astype("float32"))
    pattern = block.attention.branch.pattern
    expected = np.asarray(pattern(np.arange(12), np.arange(12))) & np.tri(12, dtype=bool)
    assert expected.sum() < 12 * 13 / 2
    for place in range(12):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(block(x)[0, place] * np.arange(1.0, 9.0))
        seen = np.abs(tape.gradient(y, x)[0]).max(-1) > 0
        np.testing.assert_array_equal(seen, expected[place])


def test_a_block_or_tile_of_the_whole_picture_is_full_attention(monkeypatch):
    tokens = ImageTransformer(TINY).tokens_of(IMAGES)[:, :-1]
    with monkeypatch.context() as patch:
        patch.setattr(PatternAttention, "attend", Attention.attend)
        expected = np.asarray(model_of(TINY).backbone({"token_ids": tokens})["sequence_output"])
    for changes in ({"block_length": 12}, {"block_length": 6}, {"attention": "tile", "tile": (3, 4)}):
        model = model_of(dataclasses.replace(TINY, **changes)).backbone
        np.testing.assert_allclose(model({"token_ids": tokens})["sequence_output"], expected, atol=1e-5)
    local = model_of(TINY).backbone({"token_ids": tokens})["sequence_output"]
    assert np.abs(np.asarray(local) - expected).max() > 1e-3


@pytest.mark.parametrize("config", [TINY, TILES])
def test_decoding_is_the_uncached_models(config):
    model = model_of(config)
    expected = np.asarray(model.backbone.tokens_of(IMAGES))[:, :5]
    started = expected
    for _ in range(8):
        logits = np.asarray(model({"token_ids": expected}))[:, -1]
        expected = np.concatenate([expected, logits.argmax(-1)[:, None]], axis=1)
    written = Decoder(model, 8)(started)
    np.testing.assert_array_equal(written, expected)
    assert model.backbone.images_of(written).shape == IMAGES.shape


def test_channels_have_tables_of_their_own():
    """The same value is embedded in another way in each channel, and alike in pixels of other places."""
    model = ImageTransformer(TINY)
    randomise(model, 1)
    for name in ("rows", "columns"):
        getattr(model.embedding, name).assign(np.zeros(getattr(model.embedding, name).shape))
    x = np.asarray(model.embedding(np.array([[256, 7, 7, 7, 7, 9]])))[0]
    np.testing.assert_array_equal(x[1], x[3])
    np.testing.assert_array_equal(x[2], x[4])
    assert np.abs(x[1] - x[2]).max() > 0.01 and np.abs(x[5] - x[1]).max() > 0.01
    with pytest.raises(ValueError, match=r"`token_ids` must lie in \[0, 257\); one of them is 257"):
        model.embedding(np.array([[257]]))
