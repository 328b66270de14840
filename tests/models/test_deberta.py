"""DeBERTa: the contract, the published sizes, what its parts do."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_tfm.heads import Classifier, MaskedLM
from keras_tfm.models import DeBERTa, DeBERTaConfig
from keras_tfm.models.text.deberta import ConvolutionBranch
from tests import contract
from tests.contract import Case, ids, mask

SIZES = {"num_layers": 2, "dim": 8, "num_heads": 2, "intermediate_dim": 12, "max_length": 16}
V1 = DeBERTaConfig(
    11,
    **SIZES,
    num_buckets=0,
    normalize_distances=False,
    share_projections=False,
    key_bias=False,
)
V2 = DeBERTaConfig(11, **SIZES, num_buckets=4, convolution=3)
V3 = DeBERTaConfig(11, **SIZES, num_buckets=4)
ONE_BLOCK = dataclasses.replace(V3, num_layers=1)  # enough under a head
ALL = dataclasses.replace(
    V1, num_segments=2, absolute_positions=True, embedding_dim=5, position_terms=("p2c",), max_distance=3
)
INPUTS = {"token_ids": ids("T", 11), "padding_mask": mask("T")}
TWO_LAYERS = {"hidden_dim": 8, "activation": "gelu", "dropout": 0.1}

test_contract = contract.check_family(
    Case("version 1", lambda: DeBERTa(V1), INPUTS, attends=True),
    Case("version 2", lambda: DeBERTa(V2), INPUTS, attends=True),
    Case("every option", lambda: DeBERTa(ALL), {**INPUTS, "segment_ids": ids("T", 2)}, attends=True),
    Case("MaskedLM", lambda: MaskedLM(DeBERTa(ONE_BLOCK)), {**INPUTS, "mask_positions": ids("M", 1)},
         attends=True,
         tied=lambda model: (model.get_layer("mlm").embedding.token, model.backbone.embedding.token)),
    Case("Classifier", lambda: Classifier(DeBERTa(ONE_BLOCK), 3, **TWO_LAYERS), INPUTS, attends=True),
)  # fmt: skip


# As transformers counts the released configurations; He et al. 2023 have 86 M, 304 M and 22 M for version 3's
# base, large and xsmall without the tokens' embedding.
@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("v1-base", 138_601_728),
        ("v1-large", 405_163_008),
        ("v2-xlarge", 884_593_152),
        ("v3-xsmall", 70_682_112),
        ("v3-base", 183_831_552),
        ("v3-large", 434_012_160),
    ],
)
def test_parameters_of_the_published_sizes(size, count, no_allocation):
    assert contract.num_parameters(DeBERTa.from_size(size).trainable_weights) == count


def test_tokens_see_distances_and_no_absolute_positions():
    """A text is the same with padding before it, and another one backwards."""
    model = DeBERTa(V3)
    contract.randomise(model, seed=0)
    text = {"token_ids": np.array([[5, 6, 7]])}
    moved = {"token_ids": np.array([[0, 0, 5, 6, 7]]), "padding_mask": np.array([[0, 0, 1, 1, 1]], bool)}
    here, there = model(text)["sequence_output"], model(moved)["sequence_output"][:, 2:]
    np.testing.assert_allclose(here, there, atol=1e-5)
    turned = model({"token_ids": np.array([[7, 6, 5]])})["sequence_output"][:, ::-1]
    assert np.abs(np.asarray(here) - turned).max() > 1e-3


def test_all_layers_share_one_table_of_distances():
    model = DeBERTa(V3)
    tables = [weight.path for weight in model.weights if weight.path.endswith("distances/embeddings")]
    assert tables == ["distances/embeddings"]


def test_the_convolution_sees_no_padding():
    layer = ConvolutionBranch(3, "relu")
    x, y = np.random.default_rng(0).normal(size=(2, 1, 4, 8)).astype("float32")
    mask = np.array([[True, True, True, False]])
    layer(x, y, mask)
    contract.randomise(layer, seed=0)
    kernel, bias, gamma, beta = (weight.numpy() for weight in layer.weights if "seed" not in weight.path)
    padded = np.pad(x * mask[..., None], ((0, 0), (1, 1), (0, 0)))
    convolved = sum(padded[:, i : i + 4] @ kernel[i] for i in range(3)) + bias
    total = y + np.maximum(convolved, 0)
    centered = total - total.mean(-1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-7) * gamma + beta
    np.testing.assert_allclose(np.asarray(layer(x, y, mask))[:, :3], expected[:, :3], atol=1e-5)


def test_a_configuration_read_from_json_is_the_same():
    config = json.loads(json.dumps(dataclasses.asdict(ALL)))
    assert DeBERTaConfig(**config) == ALL


def test_impossible_configurations_are_refused():
    with pytest.raises(ValueError, match="`convolution` must be odd, or 0 for none; it is 2"):
        DeBERTa(dataclasses.replace(V3, convolution=2))
    with pytest.raises(ValueError, match="`num_layers` must be at least 1; it is 0"):
        DeBERTa(dataclasses.replace(V3, num_layers=0))


def test_a_clone_has_the_same_weights():
    """The table of distances is a node of the graph, which each block takes as a tensor: it stays one."""
    model = DeBERTa(V2)
    contract.randomise(model, seed=0)
    clone = keras.models.clone_model(model)
    assert [w.path for w in clone.weights] == [w.path for w in model.weights]
    clone.set_weights(model.get_weights())
    batch = {"token_ids": np.array([[1, 2, 3]]), "padding_mask": np.ones((1, 3), bool)}
    np.testing.assert_array_equal(clone(batch)["sequence_output"], model(batch)["sequence_output"])
