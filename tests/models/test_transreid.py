"""TransReID: the jigsaw by hand, cameras, parts; its numbers are compared by tests.parity.golden."""

import numpy as np
import pytest

from keras_tfm.heads import Reidentifier
from keras_tfm.models import TransReID, TransReIDConfig, ViT
from keras_tfm.models.vision.transreid import CameraEmbedding, jigsaw
from tests import contract
from tests.contract import Case, Spec, floats, randomise

SMALL = TransReIDConfig(
    image_size=(10, 7),
    patch_size=4,
    stride=3,
    num_channels=1,
    num_layers=2,
    dim=8,
    num_heads=2,
    intermediate_dim=10,
    num_cameras=3,
    num_parts=2,
    shift=2,
)
INPUTS = {"images": floats(10, 7, 1), "camera": Spec((), "int32", 3)}

test_contract = contract.check_family(
    Case("TransReID", lambda: TransReID(SMALL), INPUTS, attends=True, convolves=True)
)


@pytest.mark.parametrize(("size", "num_parts"), [("B/16", 4), ("B/16-plain", 0)])
def test_parameters_of_the_published_sizes(size, num_parts, no_allocation):
    """ViT-B's, with a position for each of 210 patches, or 128; parts add a block."""
    ours, theirs = TransReID.from_size(size), ViT.from_size("B/16")
    block = [weight for weight in theirs.trainable_weights if weight.path.startswith("block_0/")]
    positions = (210 if num_parts else 128) - 196
    expected = contract.num_parameters(theirs.trainable_weights) + 768 * positions
    expected += contract.num_parameters(block) + 2 * 768 if num_parts else 0
    assert contract.num_parameters(ours.trainable_weights) == expected


def test_the_jigsaw_by_hand():
    x = np.arange(8, dtype="float32").reshape(1, 8, 1)
    assert jigsaw(x, 3, 2).numpy().ravel().tolist() == [2, 6, 3, 7, 4, 0, 5, 1]
    assert jigsaw(x, 1, 4).numpy().ravel().tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


@pytest.fixture(scope="module")
def model():
    model = Reidentifier(TransReID(SMALL), 5)
    randomise(model, 1)
    return model


def draw(seed=0):
    images = np.random.default_rng(seed).normal(size=(2, 10, 7, 1)).astype("float32")
    return {"images": images, "camera": np.array([0, 2])}


def test_outputs(model):
    outputs = {**model.backbone(draw()), **model(draw())}
    assert {name: x.shape for name, x in outputs.items()} == {
        "sequence_output": (2, 7, 8),
        "pooled_output": (2, 8),
        "local_outputs": (2, 2, 8),
        "logits": (2, 5),
        "local_logits": (2, 2, 5),
        "embeddings": (2, 24),
    }
    local = np.asarray(outputs["local_outputs"]) / 2
    expected = np.concatenate([outputs["pooled_output"], local[:, 0], local[:, 1]], axis=-1)
    np.testing.assert_allclose(outputs["embeddings"], expected, rtol=1e-6)


def test_a_part_sees_its_patches_alone(model):
    """Of 3 x 2 patches, shifted by one and dealt to two groups, the first part has numbers 1, 4 and 2."""
    config, images = model.backbone.config, draw()["images"]
    assert jigsaw(np.arange(6.0).reshape(1, 6, 1), config.shift, 2)[0, :3, 0].numpy().tolist() == [1, 4, 2]
    one_layer = TransReID(TransReIDConfig(**{**vars(config), "num_layers": 1}))
    randomise(one_layer, 1)
    inputs = {"images": images, "camera": np.array([0, 2])}
    changed = images.copy()
    changed[:, 9:, :3] += 1  # of patch 4, in row 2 and column 0, alone
    before, after = (
        np.asarray(one_layer({**inputs, "images": x})["local_outputs"]) for x in (images, changed)
    )
    assert np.abs(after - before).max((0, 2)).tolist()[1] == 0 and np.abs(after - before)[:, 0].max() > 1e-4


def test_cameras_are_added_to_every_token():
    layer = CameraEmbedding(3, 2.0)
    x = np.random.default_rng(0).normal(size=(2, 4, 5)).astype("float32")
    y = layer(x, np.array([2, 0]))
    expected = x + 2 * np.asarray(layer.table)[[2, 0]][:, None]
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"`camera` must lie in \[0, 3\); one of them is 3"):
        layer(x, np.array([2, 3]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"patch_size": 300}, r"`patch_size` must be at most the image, \(256, 128\); it is 300"),
        ({"num_groups": 4}, "`num_groups` must be a divisor of the 210 patches; it is 4"),
        ({"num_parts": 300}, "`num_parts` must be at most the patches, 210"),
    ],
)
def test_refusals(fields, message):
    with pytest.raises(ValueError, match=message):
        TransReIDConfig(**fields)
