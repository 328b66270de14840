"""TimeSformer: its published size, what its three kinds of attention see, its folders."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.convert import save_huggingface
from keras_tfm.heads import Classifier
from keras_tfm.models import TimeSformer, TimeSformerConfig
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways, check_refusal

DIVIDED = TimeSformerConfig(
    image_size=4,
    patch_size=2,
    num_channels=1,
    num_layers=1,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
    num_frames=3,
)
JOINT, SPACE = (dataclasses.replace(DIVIDED, attention=attention) for attention in ("joint", "space"))
VIDEOS = {"videos": floats(3, 4, 4, 1)}

test_contract = contract.check_family(
    Case("divided", lambda: TimeSformer(DIVIDED), VIDEOS, attends=True),
    Case("joint", lambda: TimeSformer(JOINT), VIDEOS, attends=True),
    Case("space", lambda: TimeSformer(SPACE), VIDEOS, attends=True),
)


# transformers' counts of the classifier with Kinetics' 400 classes; joint: the same less the attention along
# time, its norm and its linear layer in each of 12 blocks; space: without vectors of the 8 frames too.
@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        ("divided", DIVIDED_COUNT := 121_566_352),
        ("joint", JOINT_COUNT := DIVIDED_COUNT - 12 * (5 * (768**2 + 768) + 2 * 768)),
        ("space", JOINT_COUNT - 8 * 768),
    ],
)
def test_parameters_of_the_published_size(attention, expected, no_allocation):
    model = Classifier(TimeSformer.from_size("B/16", attention=attention), 400)
    assert contract.num_parameters(model.weights) == expected


def draw():
    return np.random.default_rng(0).random((2, 3, 4, 4, 1), "float32")


def test_outputs():
    for config, length in ((DIVIDED, 13), (JOINT, 13), (SPACE, 5)):
        outputs = TimeSformer(config)({"videos": draw()})
        assert outputs["sequence_output"].shape == (2, length, 8)
        np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])


def changed_by_a_patch(config):
    """Which tokens of the block's output change with the second patch of the second frame: the class token,
    and (3, 4) patches.
    """
    model = TimeSformer(config)
    randomise(model, 1)
    states = keras.Model(model.input, model.hidden_states["encoder"][-1])
    videos = draw()[:1]
    other = videos.copy()
    other[:, 1, :2, 2:] += 1
    y, changed = (np.asarray(states({"videos": x})) for x in (videos, other))
    changed = np.abs(y - changed).max(-1) > 1e-6
    if config.attention == "space":  # (B F, N + 1)
        return changed[:, 0], changed[:, 1:]
    return changed[0, 0], changed[0, 1:].reshape(3, 4)


def test_what_a_block_sees():
    token, patches = changed_by_a_patch(JOINT)
    assert token and patches.all()
    tokens, patches = changed_by_a_patch(SPACE)
    np.testing.assert_array_equal(tokens, [False, True, False])
    np.testing.assert_array_equal(patches, [[False] * 4, [True] * 4, [False] * 4])
    token, patches = changed_by_a_patch(DIVIDED)
    assert token and patches.all()  # along time, then along space of every frame


def test_divided_attention_of_zeros_along_time_is_that_along_space():
    """Then a block keeps the frames apart, but for what the class token reads."""
    model = TimeSformer(DIVIDED)
    randomise(model, 1)
    (block,) = model.blocks["encoder"]
    dense = block.temporal_attention.branch.attention.layers[1]
    dense.kernel.assign(np.zeros((8, 8)))
    dense.bias.assign(np.zeros(8))
    x = np.random.default_rng(0).normal(size=(1, 13, 8)).astype("float32")
    other = x.copy()
    other[0, 6] += np.arange(8)
    changed = np.abs(np.asarray(block(x)) - np.asarray(block(other))).max(-1)[0] > 1e-6
    np.testing.assert_array_equal(changed, [True, *[False] * 4, *[True] * 4, *[False] * 4])


def test_the_order_of_frames_matters_by_their_vectors_alone():
    for config, is_ordered in ((DIVIDED, True), (JOINT, True), (SPACE, False)):
        model = TimeSformer(config)
        randomise(model, 1)
        videos = draw()
        answers = [np.asarray(model({"videos": x})["pooled_output"]) for x in (videos, videos[:, ::-1])]
        assert (np.abs(answers[0] - answers[1]).max() > 1e-4) == is_ordered
        if is_ordered:
            model.get_layer("time").embedding.embeddings.assign(np.zeros((3, 8)))
            answers = [model({"videos": x})["pooled_output"] for x in (videos, videos[:, ::-1])]
            np.testing.assert_allclose(*answers, atol=1e-5)


@pytest.mark.parametrize("config", [DIVIDED, JOINT])
def test_folders_of_transformers_both_ways(config, tmp_path):
    check_both_ways(Classifier(TimeSformer(config), 5), tmp_path / "folder")


def test_refusals(tmp_path):
    save_huggingface(TimeSformer(DIVIDED), tmp_path / "folder")
    message = "attention_type: expected one of divided_space_time, joint_space_time, got 'space_only'"
    check_refusal(tmp_path / "folder", {"attention_type": "space_only"}, message)
    with pytest.raises(ValueError, match="computes only `attention` 'divided' and 'joint'; it is 'space'"):
        save_huggingface(TimeSformer(SPACE), tmp_path / "space")
    with pytest.raises(ValueError, match=r"whose `image_size` is a number; it is \(4, 6\)"):
        save_huggingface(TimeSformer(dataclasses.replace(DIVIDED, image_size=(4, 6))), tmp_path / "wide")
    with pytest.raises(ValueError, match="Images of 4 x 4 are not divisible into patches of 3 x 3"):
        TimeSformer(dataclasses.replace(DIVIDED, patch_size=3))
