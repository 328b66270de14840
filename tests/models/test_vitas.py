"""ViTAS: the networks that were found, and how wide their heads are."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import ViTAS, ViTASConfig
from tests import contract
from tests.contract import Case, floats

SMALL = ViTASConfig((8, 12), 4, 1, dim=7, num_heads=(2, 3), key_dims=(3, 2), hidden_dims=(5, 6))

test_contract = contract.check_family(
    Case("ViTAS", lambda: ViTAS(SMALL), {"images": floats(8, 12, 1)}, attends=True),
)


# Products of one image, in 10^9: the names that the authors' files have (858M, 1G, 1.3G, 2.7G, 4.9G).
@pytest.mark.parametrize(
    ("size", "with_1000_classes", "products"),
    [
        ("A", 3_679_478, 0.83),
        ("B", 4_400_248, 0.96),
        ("C", 6_048_414, 1.27),
        ("E", 12_550_598, 2.65),
        ("F", 22_540_277, 4.90),
    ],
)
def test_the_published_sizes(size, with_1000_classes, products, no_allocation):
    model = Classifier(ViTAS.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes
    config = model.backbone.config
    heads = sum(n * width for n, width in zip(config.num_heads, config.key_dims, strict=True))
    linear = 197 * config.dim * (4 * heads + 2 * sum(config.hidden_dims))
    edges = 196 * 768 * config.dim + 1000 * config.dim
    assert round((linear + 2 * 197**2 * heads + edges) / 1e9, 2) == products


def test_outputs_and_the_scale_of_the_scores():
    model = ViTAS(SMALL)
    images = np.random.default_rng(0).random((3, 8, 12, 1), "float32")
    outputs = model({"images": images})
    assert outputs["sequence_output"].shape == (3, 7, 7)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    attentions = [block.attention.branch for block in model.blocks["encoder"]]
    assert [x.projections.key_width for x in attentions] == [3, 2]
    assert [x.scale for x in attentions] == [3**-0.5, 2**-0.5]  # 7 // 2 and 7 // 3


def test_refusals():
    with pytest.raises(ValueError, match="`num_heads`, `key_dims` and `hidden_dims` must have a number"):
        dataclasses.replace(SMALL, key_dims=(3,))
    with pytest.raises(ValueError, match="`num_heads` must be at most `dim`, 7"):
        dataclasses.replace(SMALL, num_heads=(2, 8))
