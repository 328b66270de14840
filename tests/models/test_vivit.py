"""ViViT: its published sizes, its tubelets, its factorised forms, its folders."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.convert import save_huggingface
from keras_tfm.heads import Classifier
from keras_tfm.layers import MultiHeadAttention
from keras_tfm.models import ViViT, ViViTConfig
from keras_tfm.models.video.vivit import SplitAttention
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways

SMALL = ViViTConfig(
    num_frames=4,
    image_size=(4, 6),
    tubelet_size=(2, 2, 3),
    num_channels=1,
    num_layers=1,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
)
FACTORIZED = dataclasses.replace(SMALL, num_temporal_layers=1)
SELF_ATTENTION = dataclasses.replace(SMALL, attention="factorized")
SPLIT = dataclasses.replace(SMALL, attention="split")
STEM = dataclasses.replace(SMALL, image_size=(4, 8), tubelet_size=(2, 2, 4), stem=((4, 2), (6, 1)))
VIDEOS = {"videos": floats(4, 4, 6, 1)}

test_contract = contract.check_family(
    Case("ViViT", lambda: ViViT(SMALL), VIDEOS, attends=True),
    Case("factorised", lambda: ViViT(FACTORIZED), VIDEOS, attends=True),
    Case("factorised self-attention", lambda: ViViT(SELF_ATTENTION), VIDEOS, attends=True),
    Case("factorised dot products", lambda: ViViT(SPLIT), VIDEOS, attends=True),
)

test_contract_of_a_stem = pytest.mark.slow(
    contract.check_family(
        Case("stem", lambda: ViViT(STEM), {"videos": floats(4, 4, 8, 1)}, attends=True, convolves=True)
    )
)


# Model 1 with Kinetics' 400 classes: transformers' count. The others, in Arnab et al. 2021, table 2: 115.1,
# 117.3 and 88.9 M. Model 4 has model 1's weights less a class token and its position; model 3 has a second
# attention, with a norm, in each of 12 blocks.
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("B/16x2", 88_954_000),
        ("B/16x2-FE", 115_062_928),
        ("B/16x2-FSA", 88_954_000 - 2 * 768 + 12 * (4 * (768**2 + 768) + 2 * 768)),
        ("B/16x2-FDP", 88_954_000 - 2 * 768),
    ],
)
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = Classifier(ViViT.from_size(size), 400)
    assert contract.num_parameters(model.weights) == expected


def test_a_stem_leaves_the_tubelets_where_they_are():
    """Nine weights of each pair of channels, four of each norm; tubelets of 2 x 1 x 2 cells."""
    model, videos = ViViT(STEM), np.random.default_rng(0).random((1, 4, 4, 8, 1), "float32")
    assert model({"videos": videos})["sequence_output"].shape == (1, 9, 8)
    of_stem = (9 * 1 * 4 + 4 * 4) + (9 * 4 * 6 + 4 * 6)
    pixels, cells = 2 * 2 * 4 * 1, 2 * 1 * 2 * 6
    of_none = ViViT(dataclasses.replace(STEM, stem=())).count_params()
    assert model.count_params() == of_none + of_stem + (cells - pixels) * 8
    with pytest.raises(ValueError, match=r"strides of `stem`, 4 in all, must divide .* they are \(2, 4\)"):
        dataclasses.replace(STEM, stem=((4, 4),))


def draw():
    return np.random.default_rng(0).random((3, 4, 4, 6, 1), "float32")


def test_outputs():
    model = ViViT(SMALL)
    outputs = model({"videos": draw()})
    assert outputs["sequence_output"].shape == (3, 9, 8)  # 2 moments of 2 x 2 tubelets
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    model = ViViT(FACTORIZED)
    assert model({"videos": draw()})["sequence_output"].shape == (3, 3, 8)
    assert {stack: [x.shape[1] for x in states] for stack, states in model.hidden_states.items()} == {
        "encoder": [5, 5],
        "temporal": [3, 3],
    }
    names = {stack: [block.name for block in blocks] for stack, blocks in model.blocks.items()}
    assert names == {"encoder": ["block_0"], "temporal": ["temporal_block_0"]}


@pytest.mark.parametrize(("config", "is_apart"), [(SMALL, False), (FACTORIZED, True)])
def test_only_a_factorised_encoder_keeps_moments_apart(config, is_apart):
    """A change of the second moment reaches the first one's tokens where all attend to all."""
    model = ViViT(config)
    randomise(model, 1)
    states = keras.Model(model.input, model.hidden_states["encoder"][-1])
    videos = draw()[:1]
    other = videos.copy()
    other[:, 2:] += 1
    y, changed = (np.asarray(states({"videos": x})) for x in (videos, other))
    first = np.s_[0] if is_apart else np.s_[0, 1:5]
    assert (np.abs(y - changed)[first].max() == 0) == is_apart
    assert np.abs(y - changed).max() > 0


def test_the_order_of_moments_matters_by_positions_alone():
    model = ViViT(FACTORIZED)
    randomise(model, 1)
    videos = draw()
    swapped = np.concatenate([videos[:, 2:], videos[:, :2]], axis=1)
    position = model.get_layer("temporal_position").embedding
    pooled = [np.asarray(model({"videos": x})["pooled_output"]) for x in (videos, swapped)]
    assert np.abs(pooled[0] - pooled[1]).max() > 1e-3
    position.embeddings.assign(np.zeros(position.embeddings.shape))
    pooled = [np.asarray(model({"videos": x})["pooled_output"]) for x in (videos, swapped)]
    np.testing.assert_allclose(*pooled, atol=1e-5)


def test_of_one_moment_factorised_self_attention_is_vits_and_a_linear_layer():
    """Where temporal attention adds zeros, as the authors initialise it, it is the model without."""
    config = dataclasses.replace(SELF_ATTENTION, num_frames=2, num_layers=2)
    model, split = ViViT(config), ViViT(dataclasses.replace(config, attention="split"))
    randomise(model, 1)
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")
    for block in model.blocks["encoder"]:
        temporal = block.temporal_attention
        attention = temporal.branch.attention
        norm = np.asarray(temporal.norm(x))
        value = norm @ np.asarray(attention.projections.query_key_value.kernel)[:, 16:]
        value += np.asarray(attention.projections.query_key_value.bias)[16:]
        np.testing.assert_allclose(temporal(x), x + attention.output_projection(value), atol=1e-5)
        attention.output_projection.kernel.assign(np.zeros((8, 8)))
        attention.output_projection.bias.assign(np.zeros(8))
        expected = block.feedforward(block.attention(x))
        np.testing.assert_allclose(block(x), expected, atol=1e-6)
    assert split.count_params() < model.count_params()


def changed_by(layer, place):
    """Which of 3 moments' 4 places change with one `place` (moment, number) of the input."""
    x = np.random.default_rng(0).normal(size=(1, 12, 8)).astype("float32")
    other = x.copy()
    other[0, 4 * place[0] + place[1]] += 1
    return (np.abs(np.asarray(layer(other)) - np.asarray(layer(x))).max(-1)[0] > 1e-6).reshape(3, 4)


def test_split_heads_see_their_frame_or_their_place():
    layer = SplitAttention(num_heads=2, num_moments=3)
    layer.build((None, 12, 8))
    randomise(layer, 1)
    frame, place = np.zeros((3, 4), bool), np.zeros((3, 4), bool)
    frame[1], place[:, 2] = True, True
    np.testing.assert_array_equal(changed_by(layer.space, (1, 2)), frame)
    np.testing.assert_array_equal(changed_by(layer.time, (1, 2)), place)
    np.testing.assert_array_equal(changed_by(layer, (1, 2)), frame | place)


def test_split_attention_is_multi_head_attention_where_a_head_sees_one_axis():
    """Its weights side by side serve plain attention, whose masks hide other frames or places."""
    layer, plain = SplitAttention(num_heads=4, num_moments=3), MultiHeadAttention(4)
    for each in (layer, plain):
        each.build((None, 12, 8))
    randomise(layer, 1)
    halves = [half.attention for half in (layer.space, layer.time)]
    for name in ("kernel", "bias"):
        parts = [np.asarray(getattr(half.projections.query_key_value, name)) for half in halves]
        thirds = [np.split(part, 3, axis=-1) for part in parts]
        joined = [x for pair in zip(*thirds, strict=True) for x in pair]
        getattr(plain.projections.query_key_value, name).assign(np.concatenate(joined, axis=-1))
    kernels = [half.output_projection.kernel for half in halves]
    plain.output_projection.kernel.assign(np.concatenate(kernels))
    plain.output_projection.bias.assign(halves[0].output_projection.bias)
    moment, place = np.divmod(np.arange(12), 4)
    frames, places = moment[:, None] == moment, place[:, None] == place
    x = np.random.default_rng(0).normal(size=(2, 12, 8)).astype("float32")
    mask = np.stack([frames, frames, places, places])[None]
    np.testing.assert_allclose(layer(x), plain(x, mask=mask), atol=1e-5)


@pytest.mark.parametrize("kind", ["pooler", "classifier"])
def test_folders_of_transformers_both_ways(kind, tmp_path):
    model = ViViT(dataclasses.replace(SMALL, pooler=kind == "pooler"))
    model = Classifier(model, 5) if kind == "classifier" else model
    check_both_ways(model, tmp_path / "folder")


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="Videos of 5 frames are not divisible into tubelets of 2"):
        ViViT(dataclasses.replace(SMALL, num_frames=5))
    with pytest.raises(ValueError, match="`tubelet_size` must be a list of 3"):
        ViViTConfig(tubelet_size=(2, 16))
    with pytest.raises(ValueError, match="`num_heads` must be even where `attention` is 'split'; it is 3"):
        dataclasses.replace(SPLIT, dim=12, num_heads=3)
    with pytest.raises(ValueError, match="`num_temporal_layers` must be None where `attention` is not"):
        dataclasses.replace(FACTORIZED, attention="split")
    with pytest.raises(ValueError, match="VivitModel computes only `attention` 'joint'; it is 'split'"):
        save_huggingface(ViViT(SPLIT), tmp_path / "folder")
    with pytest.raises(ValueError, match="VivitModel computes only `num_temporal_layers` None; it is 1"):
        save_huggingface(ViViT(FACTORIZED), tmp_path / "folder")
