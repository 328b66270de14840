"""MaX-DeepLab: its outputs, and the equations of both paths by hand."""

import dataclasses

import numpy as np
import pytest

from keras_tfm import heads
from keras_tfm.layers import AxisAttention, MultiHeadAttention
from keras_tfm.models import MaxDeepLab, MaxDeepLabConfig
from keras_tfm.models.detection.max_deeplab import MemoryAttention, PixelBlock
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = MaxDeepLabConfig(
    (32, 48),
    1,
    backbone_config={"stem_dim": 4, "dims": (8,), "depths": (1,), "block": "basic"},
    depths=(1, 1),
    num_queries=3,
    dim=8,
    num_heads=2,
    num_pixel_heads=2,
    intermediate_dim=8,
    pyramid_dim=64,
    mask_dim=4,
)


def segmenter(config=SMALL, num_classes=2):
    return heads.MaskClassifier(MaxDeepLab(config), num_classes)


COARSE = dataclasses.replace(SMALL, image_size=(16, 24), depths=(1,))
test_contract = pytest.mark.slow(
    contract.check_family(
        Case(
            "MaskClassifier",
            lambda: segmenter(COARSE),
            {"images": floats(16, 24, 1)},
            attends=True,
            convolves=True,
            without_effect=("score_norm/beta",),  # it adds the same to all scores of a row
        )
    )
)


def softmax(x):
    parts = np.exp(x - x.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def weights_of(layer):
    return {weight.path.split("/", 1)[1]: np.asarray(weight, "float64") for weight in layer.weights}


def dense(layer, x):
    return x @ np.asarray(layer.kernel, "float64") + np.asarray(layer.bias, "float64")


def key_and_value(layer, x):
    return np.split(dense(layer, x), 2, axis=-1)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_the_memory_reads_pixels_and_itself_by_hand():
    """One softmax over the pixels and the memory, each with projections of its own (section 3.3)."""
    memory, pixels = draw(1, 2, 4), draw(1, 3, 6, seed=1)
    layer = MemoryAttention(num_heads=1)
    layer(memory, pixels)
    randomise(layer, 2)
    query = dense(layer.projections.query, memory[0])
    pairs = (
        key_and_value(layer.projections.key_value, pixels[0]),
        key_and_value(layer.own_key_value, memory[0]),
    )
    key, value = (np.concatenate(parts) for parts in zip(*pairs, strict=True))  # (3 + 2, 4)
    expected = dense(layer.output_projection, softmax(query @ key.T / 2) @ value)
    np.testing.assert_allclose(layer(memory, pixels)[0], expected, atol=1e-5)


def test_pixels_read_the_memory_by_hand():
    """ReLU of the sum of x, of what the branch gives and of what each cell reads of the memory."""
    x, memory = draw(1, 2, 3, 4), draw(1, 5, 6, seed=1)
    reading = MultiHeadAttention(num_heads=1)
    block = PixelBlock(AxisAttention(MultiHeadAttention(2), "height"), reading)
    block(x, memory)
    randomise(block, 2)
    cells = x.reshape(6, 4)
    key, value = key_and_value(reading.projections.key_value, memory[0])
    weights = softmax(dense(reading.projections.query, cells) @ key.T / 2)
    read = dense(reading.output_projection, weights @ value)
    norm = block.norm
    mean, variance, gamma, beta = (
        np.asarray(x) for x in (norm.moving_mean, norm.moving_variance, norm.gamma, norm.beta)
    )
    read = (read - mean) / np.sqrt(variance + norm.epsilon) * gamma + beta
    expected = np.maximum(0, x + np.asarray(block.branch(x)) + read.reshape(x.shape))
    np.testing.assert_allclose(block(x, memory), expected, atol=1e-4)
    assert (expected > 0).any() and (expected == 0).any()


@pytest.mark.slow
def test_outputs():
    model = segmenter()
    randomise(model, 1)
    outputs = model({"images": draw(2, 32, 48, 1)})
    assert {name: x.shape for name, x in outputs.items()} == {"logits": (2, 3, 3), "masks": (2, 3, 8, 12)}
    assert model.learner()({"images": draw(2, 32, 48, 1)}).shape == (2, 1, 3, 3 + 8 * 12)
    assert {stack: len(x) for stack, x in model.blocks.items()} == {"backbone": 1, "pixels": 2, "memory": 2}
    assert [tuple(x.shape[1:]) for x in model.backbone.maps] == [(8, 12, 8), (4, 6, 16), (2, 3, 32)]


def test_paths_read_each_other_in_the_last_stages_alone():
    config = dataclasses.replace(SMALL, num_two_path_stages=1, reading_dim=4)
    model = MaxDeepLab(config)
    kinds = [type(block).__name__ for block in model.blocks["pixels"]]
    assert kinds == ["ShortcutBlock", "PixelBlock"] and len(model.blocks["memory"]) == 1
    shapes = {weight.path: tuple(weight.shape) for weight in model.weights}
    values = [shape for path, shape in shapes.items() if path.endswith("reading/output/kernel")]
    assert values == [(4, 32)]  # (the values of all heads, the width of the pixels)
    for field, value, message in (
        ("num_two_path_stages", 3, "must be at most 2, as there are `depths`; it is 3"),
        ("reading_dim", 6, "must be a multiple of twice `num_heads`, 4; it is 6"),
    ):
        with pytest.raises(ValueError, match=f"`{field}` {message}"):
            dataclasses.replace(SMALL, **{field: value})


@pytest.mark.slow
def test_sizes(no_allocation):
    small = heads.MaskClassifier(MaxDeepLab.from_size("small"), 133)
    assert contract.num_parameters(small.trainable_weights) == 56_679_974
    with pytest.raises(ValueError, match="must be a multiple of twice `num_heads`"):
        MaxDeepLab.from_size("tiny", num_pixel_heads=48)
    with pytest.raises(ValueError, match="a map of even sides; stage 1 gets 3 x 3"):
        MaxDeepLab.from_size("tiny", image_size=48)
