"""VisTR: its tokens and queries, its masks, and what its losses match."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_tfm
from keras_tfm import heads
from keras_tfm.layers import SineGridPositionEncoding
from keras_tfm.models import ResNet, VisTR, VisTRConfig
from tests import contract
from tests.contract import Case, floats, mask, randomise
from tests.models import test_detr

SMALL = VisTRConfig(
    (20, 24),
    1,
    backbone_config=test_detr.RESNET,
    num_frames=2,
    num_queries=6,
    dim=12,
    num_layers=1,
    num_heads=4,
    intermediate_dim=8,
)
INPUTS = {"videos": floats(2, 20, 24, 1), "video_mask": mask(2, 20, 24)}


def segmenter(config=SMALL):
    return heads.ClipSegmenter(VisTR(config), 2, num_maps=2)


@pytest.fixture(scope="module")
def model():
    drawn = segmenter()
    randomise(drawn, 1)
    return drawn


ALONE = (
    "mask_block_1/convolution/bias",
    "mask_stage_0/convolution/bias",
    "mask_track_0/convolution/bias",
    "mask_track_1/convolution/bias",
)

test_contract = contract.check_family(
    Case(
        "ClipSegmenter",
        segmenter,
        INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        # A channel that is normalised alone does not show its bias.
        without_effect=(*test_detr.WITHOUT_EFFECT, *ALONE),
    )
)


test_contract_of_boxes = pytest.mark.slow(
    contract.check_family(
        Case(
            "ClipDetector",
            lambda: heads.ClipDetector(VisTR(SMALL), 2),
            INPUTS,
            attends=True,
            convolves=True,
            mixes_padding=True,
            without_effect=test_detr.WITHOUT_EFFECT,
        )
    )
)


def draw(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 2, 20, 24, 1)).astype("float32")


def test_outputs(model):
    outputs = model({"videos": draw()})
    assert {name: x.shape for name, x in outputs.items()} == {
        "logits": (2, 6, 3),
        "boxes": (2, 6, 4),
        "masks": (2, 6, 5, 6),
    }
    assert model.predictions.shape == (None, 6, 1 * (2 + 5) + 30)  # of one decoder block, and 5 x 6 cells
    assert {stack: len(blocks) for stack, blocks in model.blocks.items()} == {
        "backbone": 2, "encoder": 1, "decoder": 1,
    }  # fmt: skip


def test_fresh_queries_begin_as_tracks():
    """Queries of a frame share a third of their features, queries of a track the rest."""
    backbone = VisTR(SMALL)
    table = np.asarray(backbone.get_layer("decoder_queries").table).reshape(2, 3, 12)
    np.testing.assert_array_equal(table[:, 1:, :4], table[:, :-1, :4])
    np.testing.assert_array_equal(table[0, :, 4:], table[1, :, 4:])
    assert (table[0, 0, :4] != table[1, 0, :4]).all() and (table[0, 0, 4:] != table[0, 1, 4:]).all()


def test_no_gradient_drowns_the_others():
    """Self-attention to states of zeros gives its bias alone, which a norm follows."""
    keras.utils.set_random_seed(0)
    detector = heads.ClipDetector(VisTR(SMALL), 2)
    bias = detector.backbone.blocks["decoder"][0].parts["attention"].branch.attention.output_projection.bias

    def size_of_gradient():
        with tf.GradientTape() as tape:
            boxes = detector({"videos": draw()})["boxes"]
            total = tf.reduce_sum(boxes)
        return float(tf.norm(tape.gradient(total, bias.value)))

    begins = size_of_gradient()
    bias.assign(np.zeros(12))
    assert 0 < 30 * begins < size_of_gradient()


def test_fresh_masks_begin_by_likeness():
    model = segmenter()
    for name in ("mask_query", "mask_key"):
        np.testing.assert_array_equal(model.get_layer(name).kernel, np.eye(12))
    kernel = np.asarray(model.get_layer("mask_block_0").convolution.kernel)  # of 12 features and 4 heads
    num_cells = np.prod(model.backbone.maps[-1].shape[1:3])
    assert kernel[:, :, 12:].std() == pytest.approx(num_cells * kernel[:, :, :12].std(), rel=0.2)


def test_frames_meet_in_the_encoder_and_not_before(model):
    clip, other = draw(), draw()
    other[:, 1] += 1
    reader = keras_tfm.Model(model.backbone.input, [model.backbone.maps[-1], model.output["boxes"]])
    shown = np.ones(clip.shape[:-1], bool)
    (maps, boxes), (others, moved) = (reader({"videos": x, "video_mask": shown}) for x in (clip, other))
    np.testing.assert_array_equal(maps[::2], others[::2])  # the first frame of each clip
    assert np.abs(np.asarray(boxes)[:, :3] - np.asarray(moved)[:, :3]).max() > 1e-4


def test_a_track_shares_its_masks_alone(model):
    """What one query's weights change in a frame reaches the masks of its track in other frames only."""
    masks = model.get_layer("mask_track_0")
    x = (
        np.random.default_rng(0)
        .normal(size=(3, 2, 5, 6, masks.convolution.kernel.shape[3]))
        .astype("float32")
    )
    other = x.copy()
    other[1, 0] += 1
    change = np.abs(np.asarray(masks(x)) - np.asarray(masks(other))).max(axis=(2, 3, 4))
    assert change[1].min() > 0 and change[[0, 2]].max() == 0


def test_positions_are_of_frame_row_and_column():
    encoding = np.asarray(SineGridPositionEncoding()(np.zeros((1, 2, 3, 4, 12), "float32")))[0]
    np.testing.assert_array_equal(encoding[:, :1, :1, :4], encoding[:, 2:, 3:, :4])
    np.testing.assert_array_equal(encoding[:1, :, :1, 4:8], encoding[1:, :, 2:3, 4:8])
    np.testing.assert_array_equal(encoding[:1, :1, :, 8:], encoding[1:, 1:2, :, 8:])
    plane = np.asarray(SineGridPositionEncoding()(np.zeros((1, 3, 4, 8), "float32")))[0]
    np.testing.assert_array_equal(encoding[0, :, :, 4:], plane)
    with pytest.raises(ValueError, match="multiple of six; it is 8"):
        SineGridPositionEncoding()(np.zeros((1, 2, 3, 4, 8)))


# Two frames, two queries in each, two objects; the second one leaves after the first frame.
BOX, AWAY = [0.5, 0.5, 0.4, 0.4], [0.1, 0.1, 0.1, 0.1]
OBJECTS = np.array([[[[0, *BOX], [1, *AWAY]], [[0, *AWAY], [-1, 0, 0, 0, 0]]]], "float32")
FIRST, SECOND, NONE = [9.0, -9.0, -9.0], [-9.0, 9.0, -9.0], [-9.0, -9.0, 9.0]


def loss_of(*queries):
    return float(heads.ClipSetPredictionLoss(2)(OBJECTS, np.array([[queries]], "float32")))


def test_a_track_is_matched_as_a_whole():
    right = [[*SECOND, *AWAY], [*FIRST, *BOX], [*NONE, *BOX], [*FIRST, *AWAY]]
    assert loss_of(*right) < 1e-3
    # Frame by frame all would fit; but the identities of the second frame are exchanged.
    exchanged = [*right[:2], right[3], right[2]]
    image = heads.SetPredictionLoss()
    each = [
        float(image(OBJECTS[:, f], np.array([[exchanged[2 * f : 2 * f + 2]]], "float32"))) for f in (0, 1)
    ]
    assert max(each) < 1e-3 and loss_of(*exchanged) > 1
    # A query whose object is away learns to be of no class, wherever its box is.
    present = [*right[:2], [*SECOND, *BOX], right[3]]
    weight = 0.1 / (3 + 0.1)  # of no object, among the four
    assert loss_of(*present) == pytest.approx(18 * weight, rel=1e-3)


def test_absent_frames_are_no_part_of_a_cost():
    """By hand: object 1 is in the first frame alone, whose cost decides whom it belongs to."""
    loss = heads.ClipSetPredictionLoss(2)
    predictions = np.random.default_rng(0).normal(size=(1, 1, 4, 7)).astype("float32")
    predictions[..., 3:] = 1 / (1 + np.exp(-predictions[..., 3:]))
    frames = np.asarray(loss.of_frames(ops.convert_to_tensor(predictions), 2))[:, 0]  # (2, 2, 7)
    costs = np.asarray(loss.pair_costs(OBJECTS[0], frames))
    total = np.stack([costs[:, :, 0].mean(0), costs[0, :, 1]], axis=-1)
    expected = [0, 1] if total[0, 0] + total[1, 1] < total[0, 1] + total[1, 0] else [1, 0]
    found = np.asarray(loss.matched(ops.convert_to_tensor(OBJECTS[0]), frames, 1))
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], [x if x == 0 else -1 for x in expected])


def test_masks_are_learnt_by_the_frames_that_show_them():
    loss = heads.ClipMaskLoss(2, grid=(1, 2), num_classes=1)
    masks = np.array([[[[[1, 0]]], [[[0, 0]]]]])  # one object, in the first of two frames
    right = [9.0, -9.0, 0.25, 0.5, 0.5, 1.0, 9.0, -9.0]
    away = [-9.0, 9.0, 0.25, 0.5, 0.5, 1.0, 9.0, 9.0]  # a mask where there is no object
    assert float(loss(masks, np.array([[right, away]]))) < 0.01
    wrong = [*right[:-2], -9.0, 9.0]
    assert float(loss(masks, np.array([[wrong, away]]))) > 0.9


def test_cells_learn_the_objects_around_them():
    """Two cells, of which the left one is in the object: by hand, and from what the learner gives."""
    masks = np.array([[[[[1, 0]]]]])
    loss = heads.ClipMaskLoss(1, grid=(1, 2), num_classes=1, num_objects=1, num_cells=2)
    query, box = [9.0, -9.0, 0.25, 0.5, 0.5, 1.0, 9.0, -9.0], [0.25, 0.5, 0.5, 1.0]
    inside, outside = [40.0, -40.0, *box, 0.25, 0.5], [-40.0, 40.0, *box, 0.75, 0.5]

    def loss_of(*cells):
        return float(loss(masks, np.array([[np.concatenate([query, *cells])]], "float32")))

    assert loss_of(inside, outside) < 0.01
    assert loss_of([-40.0, 40.0, *inside[2:]], outside) == pytest.approx(80 / 1.1, rel=1e-3)
    assert loss_of(inside, [40.0, -40.0, *outside[2:]]) == pytest.approx(0.1 * 80 / 1.1, rel=1e-3)
    assert loss_of(inside, [40.0, -40.0, *box, 0.75, 1.0]) < 0.01  # at padding
    moved = [40.0, -40.0, 0.5, 0.5, 0.5, 1.0, 0.25, 0.5]  # a third of both boxes is common to them
    assert loss_of(moved, outside) == pytest.approx(5 * 0.25 + 2 * 2 / 3, rel=1e-2)
    with pytest.raises(ValueError, match="1 queries and 2 cells with 1 classes; they are 23 numbers wide"):
        loss(masks, np.zeros((1, 1, 23)))
    with pytest.raises(ValueError, match="`num_objects` must be at least 1 with `num_cells`; it is 0"):
        heads.ClipMaskLoss(1, grid=(1, 2), num_classes=1, num_cells=2)
    model = segmenter()
    learner, of_model = model.learner(), model.loss_of_training()
    assert learner.output.shape == (None, 2, 3 * (2 + 5 + 30) + of_model.num_cells * (2 + 7))
    targets = np.zeros((2, 2, 1, 20, 24), "int32")
    targets[..., 5:15, 5:15] = 2
    means = of_model.means(targets, learner({"videos": draw()}))
    assert len(means) == 5 and all(np.isfinite(float(total)) for total, _ in means)


def test_around_a_backbone_and_refusals():
    backbone = ResNet(ResNet.config_class((20, 24), 1, **test_detr.RESNET))
    randomise(backbone, 1)
    fields = {"num_frames": 2, "num_queries": 4, "dim": 12, "num_layers": 1, "num_heads": 2}
    around = VisTR.around(backbone, **fields, intermediate_dim=8)
    frames = draw()[0]
    expected = keras_tfm.Model(backbone.input, backbone.maps[-1])(frames)
    maps = keras_tfm.Model(around.input["videos"], around.maps[-1])(frames[None])
    np.testing.assert_allclose(maps, expected, atol=1e-5)
    with pytest.raises(ValueError, match="`num_frames` must divide `num_queries`, 4; it is 3"):
        heads.ClipDetector(VisTR.around(backbone, **fields | {"num_frames": 3}), 2)
    with pytest.raises(ValueError, match="`num_frames`, 3, must divide the number of queries; it is 4"):
        heads.ClipSetPredictionLoss(3)(np.zeros((1, 3, 1, 5)), np.zeros((1, 1, 4, 7)))
    with pytest.raises(ValueError, match="`dim` must be a multiple of 12"):
        VisTRConfig(dim=16)


def test_published_sizes():
    assert {name: (x.num_frames, x.num_queries, x.dim) for name, x in VisTR.sizes.items()} == {
        "tiny": (4, 24, 96), "50": (36, 360, 384), "101": (36, 360, 384),
    }  # fmt: skip
