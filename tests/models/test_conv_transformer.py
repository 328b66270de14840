"""ConvTransformer: attention by maps of weights by hand, times, what stands between and what comes next."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.layers.attention.tap import recording
from keras_tfm.models import ConvTransformer, ConvTransformerConfig
from keras_tfm.models.video.conv_transformer import ConvolutionalAttention, TimeEncoding
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = ConvTransformerConfig(
    num_frames=3, num_targets=2, image_size=(4, 4), num_channels=2, num_layers=1, dim=4, num_heads=2
)

test_contract = contract.check_family(
    Case(
        "ConvTransformer",
        lambda: ConvTransformer(SMALL),
        {"videos": floats(3, 4, 4, 2)},
        attends=True,
        convolves=True,
    )
)


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.fixture(scope="module")
def layer():
    layer = ConvolutionalAttention(2)
    layer.build((None, 2, 4, 5, 6), (None, 3, 4, 5, 6))
    randomise(layer, 1)
    return layer


def test_attention_by_hand(layer):
    x, context = draw(2, 2, 4, 5, 6), draw(2, 3, 4, 5, 6)[:, ::-1]
    query = np.reshape(layer.query(x), (2, 2, 1, 4, 5, 2, 3))
    key, value = (np.reshape(part(context), (2, 1, 3, 4, 5, 2, 3)) for part in (layer.key, layer.value))
    pairs = query + key
    scores = (np.where(pairs > 0, pairs, 0.2 * pairs) * np.asarray(layer.comparison)).sum(-1, keepdims=True)
    weights = np.exp(scores) / np.exp(scores).sum(2, keepdims=True)
    expected = layer.output_layer((weights * value).sum(2).reshape(2, 2, 4, 5, 6))
    recorded = []
    with recording(lambda _, value: recorded.append(value)):
        np.testing.assert_allclose(layer(x, context), expected, rtol=1e-4, atol=1e-5)
    of_frames = weights[..., 0].mean((3, 4)).transpose(0, 3, 1, 2)  # (B, heads, T, S), the pixels' mean
    np.testing.assert_allclose(recorded, of_frames[None], rtol=1e-4)


def test_frames_without_times_have_no_order_and_one_frame_has_the_weight_1(layer):
    x, context = draw(2, 2, 4, 5, 6), draw(2, 3, 4, 5, 6)
    y = np.asarray(layer(x, context))
    np.testing.assert_allclose(layer(x, context[:, [1, 2, 0]]), y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer(x[:, ::-1], context), y[:, ::-1], rtol=1e-4, atol=1e-5)
    alone = np.repeat(layer.output_layer(layer.value(context[:, :1])), 2, axis=1)
    np.testing.assert_allclose(layer(x, context[:, :1]), alone, rtol=1e-4, atol=1e-5)


def test_times():
    x = draw(1, 2, 3, 1, 4)
    angles = np.array([[2, 0.02], [0.5, 0.005]])
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(2, 1, 1, 4)
    np.testing.assert_allclose(TimeEncoding([2, 0.5])(x), x + waves, atol=1e-6)


def test_what_comes_next_and_what_stands_between():
    model = ConvTransformer(SMALL)
    assert model.get_layer("times").places == [0, 1, 2] and model.get_layer("target_times").places == [3, 4]
    assert model.output["videos"].shape == (None, 2, 4, 4, 2)
    stacks = {stack: [block.name for block in blocks] for stack, blocks in model.blocks.items()}
    assert stacks == {"encoder": ["encoder_block_0"], "decoder": ["decoder_block_0"]}
    between = ConvTransformer(dataclasses.replace(SMALL, num_frames=4, num_targets=1, target="between"))
    assert between.get_layer("target_times").places == [1.5]
    videos = draw(1, 4, 4, 4, 2)
    assert between({"videos": videos})["videos"].shape == (1, 1, 4, 4, 2)
    query, embedded = between.get_layer("target_times").input, between.get_layer("times").input
    y, frames = keras.Model(between.input, [query, embedded])({"videos": videos})
    np.testing.assert_allclose(y[:, 0], np.mean(frames[:, 1:3], axis=1), atol=1e-6)


def test_refusals():
    with pytest.raises(ValueError, match="`image_size` must be multiples of 4; it is 6 x 8"):
        dataclasses.replace(SMALL, image_size=(6, 8))
    with pytest.raises(ValueError, match="`dim` must be even"):
        dataclasses.replace(SMALL, dim=3, num_heads=1)
    with pytest.raises(ValueError, match="`target` must be 'next' but for one frame amid an even number"):
        dataclasses.replace(SMALL, target="between")
    with pytest.raises(ValueError, match="`num_heads` must divide the width 6; it is 4"):
        ConvolutionalAttention(4)(draw(1, 2, 4, 5, 6))
