"""KVT: its published sizes, and to how many keys a query attends."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_tfm.heads import Classifier
from keras_tfm.models import KVT, KVTConfig
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = KVTConfig(
    (4, 6), patch_size=2, num_channels=1, num_layers=2, dim=8, num_heads=2, intermediate_dim=12, k=6
)
# Half precisions choose other keys where scores are close: of seven keys the contract leaves out one.
IMAGES = {"images": floats(4, 6, 1)}

test_contract = contract.check_family(Case("KVT", lambda: KVT(SMALL), IMAGES, attends=True))


# As many as DeiT has (Touvron et al. 2021, table 1): the k nearest keys have no weights.
@pytest.mark.parametrize(("size", "with_1000_classes"), [("Ti", 5_717_416), ("S", 22_050_664)])
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(KVT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = KVT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 4, 6, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    assert [block.name for block in model.blocks["encoder"]] == ["block_0", "block_1"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(7, 8)] * 3


@pytest.mark.parametrize(("k", "expected"), [(3, 3), (100, 7)])
def test_a_query_attends_to_k_keys(k, expected):
    model = KVT(dataclasses.replace(SMALL, k=k))
    randomise(model, 1)
    with record_attention(model) as recorded:
        model({"images": np.random.default_rng(0).random((3, 4, 6, 1), "float32")})
    assert len(recorded) == 2
    for weights in recorded.values():
        np.testing.assert_array_equal(np.sum(ops.convert_to_numpy(weights) > 0, axis=-1), expected)


def test_another_image_size_stretches_the_positions():
    model = KVT(SMALL).with_image_size((8, 12))
    assert model({"images": np.zeros((1, 8, 12, 1), "float32")})["sequence_output"].shape == (1, 25, 8)


def test_stochastic_depth_grows_with_the_depth():
    blocks = KVT(dataclasses.replace(SMALL, num_layers=3, stochastic_depth=0.3)).blocks["encoder"]
    rates = [part.stochastic_depth for block in blocks for part in (block.attention, block.feedforward)]
    np.testing.assert_allclose(rates, [0, 0, 0.15, 0.15, 0.3, 0.3], atol=1e-12)


def test_refusals():
    with pytest.raises(ValueError, match=r"no size 'B'; it has Ti, S"):
        KVT.from_size("B")
    with pytest.raises(ValueError, match="`k` must be at least 1; it is 0"):
        dataclasses.replace(SMALL, k=0)
