"""TransT: the published counts, what sees what, padding; its head and loss are in tests/heads."""

import math

import keras
import numpy as np
import pytest

from keras_tfm import heads
from keras_tfm.models import ResNet, TransT, TransTConfig
from tests import contract
from tests.contract import Case, floats, mask, randomise

RESNET = {"stem_dim": 4, "dims": (8, 8), "depths": (1, 1), "block": "basic", "last_stride": 1}
FIELDS = {"backbone_config": RESNET, "dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
SMALL = TransTConfig((20, 24), 1, template_size=(12, 16), **FIELDS)
INPUTS = {
    "template_images": floats(12, 16, 1),
    "images": floats(20, 24, 1),
    "template_pixel_mask": mask(12, 16),
    "pixel_mask": mask(20, 24),
}


def detector():
    return heads.TargetDetector(TransT(SMALL))


@pytest.fixture(scope="module")
def model():
    drawn = detector()
    randomise(drawn, 1)
    return drawn


test_contract = contract.check_family(
    Case(
        "TargetDetector",
        detector,
        INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
    )
)


# zoo2: with the heads, less batch normalisation; and the fusion alone.
@pytest.mark.parametrize(
    ("size", "whole", "fusion"), [("N2", 16_670_406, 7_630_592), ("N4", 22_985_414, 13_945_600)]
)
def test_parameters_of_the_published_sizes(size, whole, fusion, no_allocation):
    model = heads.TargetDetector(TransT.from_size(size))
    count = {weight.path: math.prod(weight.shape) for weight in model.trainable_weights}
    assert sum(count.values()) == whole
    assert sum(n for path, n in count.items() if path.startswith(("template", "search", "decoder"))) == fusion
    assert model.backbone.grid == (32, 32)


def draw(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {name: spec.shape for name, spec in INPUTS.items() if "mask" not in name}
    return {name: rng.normal(size=(2, *shape)).astype("float32") for name, shape in shapes.items()}


def test_outputs(model):
    outputs = model(draw())
    assert {name: x.shape for name, x in outputs.items()} == {"scores": (2, 30), "boxes": (2, 30, 4)}
    assert model.backbone.grid == (5, 6)  # 20 x 24, a quarter as long: the last stage has no stride
    assert {stack: [x.name for x in blocks] for stack, blocks in model.blocks.items()} == {
        "backbone": ["stage_0_block_0", "stage_1_block_0"],
        "template": ["template_block_0", "template_cross_block_0"],
        "search": ["search_block_0", "search_cross_block_0", "decoder_block_0"],
    }


def test_both_sides_attend_to_the_old_states_of_the_other():
    """Exchanged images give exchanged states, since neither side goes first: with equal weights on both."""
    twin = TransT(TransTConfig((12, 16), 1, template_size=(12, 16), **FIELDS))
    randomise(twin, 1)
    for kind in ("block", "cross_block"):
        twin.get_layer(f"search_{kind}_0").set_weights(twin.get_layer(f"template_{kind}_0").get_weights())
    reader = keras.Model(twin.input, [twin.hidden_states[side][2] for side in ("template", "search")])
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 1, 12, 16, 1)).astype("float32")
    shown = np.ones((1, 12, 16), bool)

    def states_of(a, b):
        inputs = {"template_images": a, "images": b, "template_pixel_mask": shown, "pixel_mask": shown}
        return [np.asarray(x) for x in reader(inputs)]

    (a, b), (c, d) = states_of(one, other), states_of(other, one)
    np.testing.assert_allclose(a, d, atol=1e-5)
    np.testing.assert_allclose(b, c, atol=1e-5)
    assert np.abs(a - b).max() > 1e-2


def test_the_template_decides(model):
    inputs = draw()
    outputs = model(inputs)["scores"]
    other = model(inputs | {"template_images": inputs["template_images"] + 1})["scores"]
    assert np.abs(np.asarray(outputs) - np.asarray(other)).max() > 1e-4


def test_around_a_backbone():
    backbone = ResNet(ResNet.config_class((20, 24), 1, **RESNET))
    around = TransT.around(backbone, template_size=12, dim=8, num_layers=1, num_heads=2, intermediate_dim=8)
    weights = {weight.path: weight for weight in around.weights}
    for weight in backbone.weights:
        np.testing.assert_array_equal(weights[weight.path], weight)
    with pytest.raises(ValueError, match="`dim` must be a multiple of 4"):
        TransTConfig(dim=6, num_heads=2)
