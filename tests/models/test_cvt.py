"""CvT: its published sizes, its stages, what is convolved and scaled, its checkpoints both ways."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.convert import from_huggingface, save_huggingface
from keras_tfm.heads import Classifier
from keras_tfm.models import CvT, CvTConfig
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import assert_same, check_refusal

SMALL = CvTConfig(
    (24, 40),
    num_channels=1,
    dims=(4, 6, 8),
    depths=(1, 1, 2),
    num_heads=(1, 3, 2),
    mlp_ratio=(1.0, 2.5, 2.0),
    attention_dropout=(0.0, 0.0, 0.1),
)
IMAGES = {"images": floats(24, 40, 1)}

# What is added to all keys alike changes no weight, where no class token stands among them.
WITHOUT_EFFECT = tuple(
    f"stage_{i}_block_0/attention/branch/projections/key_convolution/norm/beta" for i in (0, 1)
)
DEEPER = dataclasses.replace(SMALL, depths=(1, 2, 3))
ONE_EACH = dataclasses.replace(SMALL, depths=(1, 1, 1))

test_contract = contract.check_family(
    Case("CvT", lambda: CvT(ONE_EACH), IMAGES, attends=True, convolves=True, without_effect=WITHOUT_EFFECT)
)


# Wu et al. 2021, table 3: 20 M, 32 M and 277 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"), [("13", 19_997_480), ("21", 31_622_696), ("W24", 277_196_392)]
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(CvT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_maps():
    model = CvT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 24, 40, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 1 + 2 * 3, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    assert [x.shape[1:] for x in model.maps] == [(6, 10, 4), (3, 5, 6), (2, 3, 8)]
    states = [x.shape[1:] for x in model.hidden_states["encoder"]]
    assert states == [(60, 4), (60, 4), (15, 6), (7, 8), (7, 8)]
    names = [block.name for block in model.blocks["encoder"]]
    assert names == ["stage_0_block_0", "stage_1_block_0", "stage_2_block_0", "stage_2_block_1"]


def test_keys_are_fewer_than_queries_and_scores_are_scaled_by_the_width():
    attention = CvT(SMALL).blocks["encoder"][2].attention.branch
    assert attention.scale == 8**-0.5  # of two heads of 4
    x = np.random.default_rng(0).normal(size=(1, 7, 8)).astype("float32")
    shapes = [heads.shape for heads in attention.projections.project(x)]
    assert shapes == [(1, 2, 7, 4), (1, 2, 1 + 1 * 2, 4), (1, 2, 3, 4)]


def test_the_class_token_is_not_convolved():
    projections = CvT(SMALL).blocks["encoder"][2].attention.branch.projections
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 7, 8)).astype("float32")
    other = x.copy()
    other[:, 0] += 1
    for one, two in zip(projections.project(x), projections.project(other), strict=True):
        changed = np.abs(np.asarray(one) - np.asarray(two)).max((0, 1, 3)) > 0
        np.testing.assert_array_equal(changed, np.arange(len(changed)) == 0)


def test_stochastic_depth_grows_within_a_stage():
    config = dataclasses.replace(SMALL, depths=(1, 2, 3), stochastic_depth=(0.0, 0.1, 0.2))
    rates = [block.attention.stochastic_depth for block in CvT(config).blocks["encoder"]]
    np.testing.assert_allclose(rates, [0, 0, 0.1, 0, 0.1, 0.2])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A classifier, and its folder."""
    model = Classifier(CvT(DEEPER), 5)
    randomise(model, 1)
    folder = tmp_path_factory.mktemp("cvt") / "folder"
    save_huggingface(model, folder)
    return model, folder


def test_folders_of_transformers_both_ways(saved):
    model, folder = saved
    assert_same(from_huggingface(folder), model)
    assert_same(CvT.from_huggingface(folder), model.backbone)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("depth", [1, 2, 500], "`depths` is 500, and there are 221 weights"),
        ("embed_dim", [4, 9, 8], "`dims` is 9, and no weight has such an axis"),
        ("embed_dim", [4, 6], "embed_dim: expected a list of 3"),
        ("stride_kv", [1, 1, 1], "stride_kv"),
    ],
)
def test_configurations_that_the_weights_do_not_bear_out(name, value, message, saved):
    check_refusal(saved[1], {name: value}, message)


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match=r"`depths` of at least 1, 2 and 3; they are \(1, 1, 2\)"):
        save_huggingface(CvT(SMALL), tmp_path / "folder")
    with pytest.raises(
        ValueError, match=r"`num_heads` must divide `dims`, \(4, 6, 8\); they are \(1, 4, 2\)"
    ):
        dataclasses.replace(SMALL, num_heads=(1, 4, 2))
    with pytest.raises(ValueError, match="`mlp_ratio` times `dims` must be at least 1"):
        dataclasses.replace(SMALL, mlp_ratio=(1.0, 1.0, 0.0))
    with pytest.raises(ValueError, match="smaller than a window of 7 x 7"):
        CvT(dataclasses.replace(SMALL, image_size=(2, 40)))
