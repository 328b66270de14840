"""STTN: its published sizes, attention among patches by hand, holes, the names of the authors' code."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.convert import keymap
from keras_tfm.models import STTN, STTNConfig, STTNDiscriminator, STTNDiscriminatorConfig
from keras_tfm.models.video.sttn import MultiScaleAttention, PatchAttention
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references import sttn

SMALL = STTNConfig(
    num_frames=3,
    image_size=(8, 16),
    num_channels=2,
    num_layers=2,
    encoder_dims=(2, 3, 2, 3),
    decoder_dims=(3, 2, 2),
    patch_sizes=((2, 4), (1, 2), (1, 1)),
)
MASKED = dataclasses.replace(SMALL, masks_holes=True)
CRITIC = STTNDiscriminatorConfig(num_frames=3, image_size=(13, 16), num_channels=2, dims=(4, 6, 5))

test_contract = contract.check_family(
    Case("STTN", lambda: STTN(SMALL), {"videos": floats(3, 8, 16, 2)}, attends=True, convolves=True),
    Case(
        "STTNDiscriminator",
        lambda: STTNDiscriminator(CRITIC),
        {"videos": floats(3, 13, 16, 2)},
        convolves=True,
    ),
)


# Counted by the authors' constructors.
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: STTN.from_size("base"), 16_556_163),
        (lambda: STTNDiscriminator.from_size("base"), 17_832_256),
    ],
)
def test_parameters_of_the_published_sizes(make, expected, no_allocation):
    model = make()
    assert contract.num_parameters(model.trainable_weights) == expected
    blocks = sum(block.count_params() for block in model.blocks.get("encoder", []))
    assert blocks == (15_740_928 if isinstance(model, STTN) else 0)


@pytest.fixture(scope="module")
def model():
    model = STTN(SMALL)
    randomise(model, 1)
    return model


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_frames_have_no_order(model):
    """There are no positions in time: other frames first, the same frames out."""
    videos = draw(2, 3, 8, 16, 2)
    y = np.asarray(model({"videos": videos})["videos"])
    assert y.shape == videos.shape and np.abs(y).max() <= 1
    np.testing.assert_allclose(model({"videos": videos[:, [2, 0, 1]]})["videos"], y[:, [2, 0, 1]], atol=1e-5)
    changed = videos.copy()
    changed[:, 2] += 1
    assert np.abs(np.asarray(model({"videos": changed})["videos"]) - y)[:, 0].max() > 1e-3


def test_attention_among_patches_by_hand():
    """Two frames of 2 x 6 cells, cut into patches of 2 x 3: four tokens of 2 x 3 x 4 numbers."""
    query, key, value = draw(3, 4, 2, 6, 4)
    maps = PatchAttention(2, (2, 3))(query, key, value)

    def tokens(x):
        return x.reshape(2, 2, 2, 2, 3, 4).transpose(0, 1, 3, 2, 4, 5).reshape(2, 4, 24)

    scores = np.exp(tokens(query) @ tokens(key).swapaxes(1, 2) / np.sqrt(24))
    y = scores / scores.sum(-1, keepdims=True) @ tokens(value)
    expected = y.reshape(2, 2, 2, 2, 3, 4).transpose(0, 1, 3, 2, 4, 5).reshape(4, 2, 6, 4)
    np.testing.assert_allclose(maps, expected, rtol=1e-4, atol=1e-5)


def test_patches_that_are_holes_are_not_attended_to():
    layer = MultiScaleAttention(2, ((2, 3), (1, 2)))
    x = draw(4, 2, 6, 4)
    seen = np.ones((4, 2, 6), bool)
    seen[1, :, :2] = False  # of the second frame: four of six cells of a large patch, one small one per row
    seen[2:] = False  # all of the second video
    layer.build(x.shape)
    with record_attention(layer) as records:
        layer(x, mask=seen)
    large, small = map(np.asarray, records.values())
    assert large.shape == (2, 1, 4, 4) and small.shape == (2, 1, 12, 12)
    np.testing.assert_array_equal((large[0, 0] > 0).all(0), [True, True, False, True])
    np.testing.assert_array_equal((small[0, 0] > 0).all(0), [i not in (6, 9) for i in range(12)])
    np.testing.assert_allclose(large.sum(-1), 1, atol=1e-5)  # where all are holes, all are attended to
    assert (large[1] > 0).all()
    half = np.ones((4, 2, 6), bool)
    half[1, 0, :3] = False  # not more than a half of the first large patch
    np.testing.assert_allclose(layer.scales[0](x, x, x, mask=half), layer.scales[0](x, x, x), atol=1e-6)


def test_holes_are_masked_on_request_alone(model):
    videos, holes = draw(1, 3, 8, 16, 2), np.zeros((1, 3, 8, 16), bool)
    masked = STTN(MASKED)
    masked.set_weights(model.get_weights())
    expected = np.asarray(model({"videos": videos})["videos"])
    np.testing.assert_allclose(masked({"videos": videos, "holes": holes})["videos"], expected, atol=1e-6)
    holes[:, 1, :, :8] = True
    y = np.asarray(masked({"videos": videos, "holes": holes})["videos"])
    assert np.abs(y - expected).max() > 1e-3


def test_names_of_the_authors_code(model):
    weights = keymap.save(model, sttn.rows())
    assert weights["transformer.1.attention.key_embedding.weight"].shape == (3, 3, 1, 1)
    assert weights["decoder.4.conv.weight"].shape == (2, 2, 3, 3)
    arguments = {"channel": 3, "stack_num": 2, "patchsize_wh": [[4, 2], [2, 1], [1, 1]]}
    arguments |= {"encoder": [2, 3, 2, 3], "decoder": [3, 2, 2, 2]}
    assert sttn.config_of(arguments, (1, 3, 8, 16, 2)) == SMALL
    assert sttn.config_of({}, (1, 5, 240, 432, 3)) == STTN.sizes["base"]


def test_the_discriminator_scores_pieces():
    critic = STTNDiscriminator(CRITIC)
    videos = draw(1, 3, 13, 16, 2)
    scores = critic({"videos": videos})["scores"]
    # The first convolution has a margin of 1: 13 x 16 -> 6 x 7 -> 3 x 4 -> 2 x 2.
    assert scores.shape == (1, 3, 2, 2, 5)
    biases = [weight.path for weight in critic.trainable_weights if weight.path.endswith("bias")]
    assert biases == ["convolution_2/convolution/bias"]
    layer = critic.get_layer("convolution_0")
    before = np.array(layer.vector)
    keras.ops.convert_to_numpy(critic({"videos": videos}, training=True)["scores"])
    assert np.abs(before - layer.vector).max() > 0


def test_refusals():
    with pytest.raises(ValueError, match="`image_size` must be multiples of 4; it is 8 x 18"):
        dataclasses.replace(SMALL, image_size=(8, 18))
    with pytest.raises(ValueError, match=r"`patch_sizes` must be as many as divide .*, 3; it is 4"):
        dataclasses.replace(SMALL, patch_sizes=((1, 1),) * 4)
    with pytest.raises(ValueError, match="Images of 2 x 4 are not divisible into patches of 2 x 3"):
        dataclasses.replace(SMALL, patch_sizes=((2, 3),) * 3)
    with pytest.raises(ValueError, match="`dims` must be at least one width"):
        STTNDiscriminatorConfig(dims=())
