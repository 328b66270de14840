"""Point Transformer: the published count, clouds in another order, colours, the way up; its bricks are
compared with the numbers of a reference by tests.parity.golden.
"""

import numpy as np
import pytest

from keras_tfm.heads import Classifier, TokenTagger
from keras_tfm.layers.base import SameShape
from keras_tfm.models import PointTransformer, PointTransformerConfig
from keras_tfm.models.points.point_transformer import PointBlock
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = PointTransformerConfig(32, 2, (8, 8), (1, 1), (8, 8), num_sharing=2)

test_contract = contract.check_family(
    Case(
        "PointTransformer",
        lambda: PointTransformer(SMALL),
        {"points": floats(32, 5)},
        attends=True,
        without_effect=("weighing/layer_3/bias",),  # adds the same to all scores
        left_loss=0.2,  # each of the 32 points has a target of its own
    )
)


@pytest.fixture(scope="module")
def model():
    model = TokenTagger(PointTransformer(SMALL), 5)
    randomise(model, 1)
    return model


def clouds(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 32, 5)).astype("float32")


# zoo2: for coordinates and colours and 13 classes, counted from the reference's constructor.
@pytest.mark.parametrize(("size", "expected"), [("S3DIS", 7_767_729)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = TokenTagger(PointTransformer.from_size(size), 13)
    assert contract.num_parameters(model.trainable_weights) == expected
    assert [len(model.blocks[stack]) for stack in ("encoder", "decoder")] == [13, 5]


def test_every_point_keeps_its_output_in_another_order(model):
    """The first one stays where it is: from it the others are sampled."""
    points = clouds()
    order = np.array([0, *np.random.default_rng(1).permutation(np.arange(1, 32))])
    expected = np.asarray(model(points))[:, order]
    np.testing.assert_allclose(model(points[:, order]), expected, rtol=1e-4, atol=1e-5)


def test_places_count_by_their_offsets_after_the_embedding(model):
    """Points are embedded with their coordinates; a colour is no coordinate, and changes no neighbours."""
    points = clouds()
    coloured = points + np.float32([0, 0, 0, 50, 50])
    near = model.backbone.get_layer("stage_0_nearest")
    places = points[..., :3]
    np.testing.assert_array_equal(near(places, places), near(coloured[..., :3], coloured[..., :3]))
    assert np.abs(np.asarray(model(coloured)) - model(points)).max() > 1e-2


def test_without_a_decoder_the_fewest_points_come_out():
    config = PointTransformerConfig(16, 0, (4, 6), (1, 1), (3, 4), num_sharing=2, has_decoder=False)
    backbone = PointTransformer(config)
    points = clouds()[:, :16, :3]
    assert {name: y.shape for name, y in backbone(points).items()} == {"sequence_output": (2, 4, 6)}
    assert Classifier(backbone, 5, pooling="mean")(points).shape == (2, 5)


def test_a_wrong_coordinate_spoils_its_cloud_alone(model):
    points = clouds()
    points[1, 4, 0] = np.inf
    logits = np.asarray(model(points))
    assert np.isnan(logits[1]).all()
    np.testing.assert_allclose(logits[0], model(points[:1])[0], rtol=1e-5, atol=1e-6)


class Probe(SameShape):
    """Keeps the dtypes with which it was called, of vectors and of points."""

    def __init__(self):
        super().__init__(autocast=False)
        self.built = True

    def call(self, x, points, neighbours, training=None):
        self.dtypes = x.dtype.name, points.dtype.name
        return x


def test_points_keep_their_precision_in_a_block():
    probe, points = Probe(), clouds()[..., :3]
    PointBlock(probe, dtype="mixed_bfloat16")(points, points=points, neighbours=np.zeros((2, 32, 1), "int32"))
    assert probe.dtypes == ("bfloat16", "float32")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"num_points": 1024},
            r"`num_neighbours` must be at most the points of the stages, \(1024, 256, 64, 16, 4\)",
        ),
        ({"num_sharing": 3}, r"`num_sharing` must divide all of `dims`, \(32, 64, 128, 256, 512\); it is 3"),
        ({"depths": (1,)}, "must have a number for each stage"),
        (
            {"num_points": 512, "num_neighbours": (2,) * 5},
            "`num_points` must be at least 768, to interpolate between; it is 512",
        ),
    ],
)
def test_refusals(fields, message):
    with pytest.raises(ValueError, match=message):
        PointTransformerConfig(**fields)
