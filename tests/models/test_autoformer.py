"""AutoFormer and its supernet: sizes, layers that differ, networks that are parts of one set of weights."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_tfm.heads import Classifier
from keras_tfm.models import AutoFormer, AutoFormerConfig, AutoFormerSupernet, SearchSpace
from keras_tfm.models.vision.autoformer_supernet import copy_leading
from tests import contract
from tests.contract import Case, Spec, floats

SMALL = AutoFormerConfig(
    (8, 12), 4, 1, dim=8, num_heads=(1, 2), mlp_ratios=(1.5, 1), key_dim=4, max_distance=1
)
SPACE = SearchSpace(
    (8, 12),
    4,
    1,
    dims=(5, 7, 8),
    num_layers=(1, 2),
    num_heads=(1, 2, 3),
    mlp_ratios=(1, 1.5, 2),
    key_dim=4,
    max_distance=1,
)
IMAGES = {"images": floats(8, 12, 1)}

test_contract = contract.check_family(
    Case("AutoFormer", lambda: AutoFormer(SMALL), IMAGES, attends=True),
    Case(
        "AutoFormerSupernet",
        lambda: AutoFormerSupernet(SPACE),
        IMAGES | {"network": Spec((5,), "int32", 20)},
        attends=True,
    ),
)


# The authors' files have 5.8 M (the shapes' own sum is 5.87 M), 22.9 M and 53.7 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"), [("T", 5_867_944), ("S", 22_891_432), ("B", 53_691_688)]
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(AutoFormer.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = AutoFormer(SMALL)
    images = np.random.default_rng(0).random((3, 8, 12, 1), "float32")
    outputs = model({"images": images})
    assert outputs["sequence_output"].shape == (3, 7, 8)
    mean = ops.mean(outputs["sequence_output"][:, 1:], axis=1)
    np.testing.assert_allclose(outputs["pooled_output"], mean, atol=1e-6)
    assert [block.name for block in model.blocks["encoder"]] == ["block_0", "block_1"]
    widths = [block.attention.branch.projections.num_heads for block in model.blocks["encoder"]]
    assert (widths, SMALL.hidden_dims) == ([1, 2], (12, 8))
    assert len(model.hidden_states["encoder"]) == 3


def test_a_network_of_the_supernet_is_the_model_with_its_part_of_the_weights():
    """Examples of one batch each have a network: deep or shallow, wide or narrow, of few heads or many."""
    supernet = Classifier(AutoFormerSupernet(SPACE), 3)
    contract.randomise(supernet, seed=1)
    rng = np.random.default_rng(2)
    networks = [SPACE.network(5, [3], [1]), SPACE.largest, *(SPACE.sample(rng) for _ in range(2))]
    images = rng.normal(size=(len(networks), 8, 12, 1)).astype("float32")
    codes = np.stack([SPACE.encode(network) for network in networks])
    logits = supernet({"images": images, "network": codes})
    for i, network in enumerate(networks):
        alone = Classifier(AutoFormer(network), 3)
        copy_leading(supernet, alone)
        np.testing.assert_allclose(logits[i], alone({"images": images[i : i + 1]})[0], atol=2e-6)
    alone = supernet.backbone.sub_network(networks[0])
    states = supernet.backbone({"images": images[:1], "network": codes[:1]})["sequence_output"]
    np.testing.assert_allclose(states[..., :5], alone(images[:1])["sequence_output"], atol=2e-6)
    np.testing.assert_array_equal(states[..., 5:], 0)
    with pytest.raises(ValueError, match=r"must be a part of the supernet's, which is \(16, 8\)"):
        copy_leading(supernet, Classifier(AutoFormer(dataclasses.replace(networks[0], dim=9)), 3))


def test_refusals():
    with pytest.raises(ValueError, match="`num_heads` and `mlp_ratios` must have a number for each stage"):
        dataclasses.replace(SMALL, num_heads=(1,))
    with pytest.raises(ValueError, match="`dims` must have at least one number"):
        dataclasses.replace(SPACE, dims=())
    with pytest.raises(ValueError, match="no size 'L'; it has T, S, B"):
        AutoFormer.from_size("L")
