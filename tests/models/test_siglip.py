"""SigLIP: the contract, its sizes, how its sides are pooled."""

import dataclasses
import math

import numpy as np
import pytest

from keras_tfm.heads import Contrastive
from keras_tfm.models import SigLIP, SigLIPConfig
from tests import contract
from tests.contract import Case, floats, ids

SMALL = SigLIPConfig((4, 6), 2, 1, 1, 8, 2, 12, 11, 9, 1, 6, 3, 10, embedding_dim=8)
INPUTS = {"images": floats(4, 6, 1), "token_ids": ids("T", 11)}

test_contract = contract.check_family(Case("SigLIP", lambda: SigLIP(SMALL), INPUTS, attends=True))


# transformers' count; the head has two weights, the logits' scale and bias.
def test_parameters_of_the_published_size(no_allocation):
    model = Contrastive(SigLIP.from_size("B/16"), math.log(10), -10.0)
    assert contract.num_parameters(model.trainable_weights) == 203_155_970


def test_outputs():
    model = SigLIP(SMALL)
    contract.randomise(model, seed=0)
    rng = np.random.default_rng(0)
    images, token_ids = rng.random((3, 4, 6, 1), "float32"), rng.integers(0, 11, (3, 5))
    outputs = model({"images": images, "token_ids": token_ids})
    assert outputs["image_sequence_output"].shape == (3, 6, 8)
    pooled = model.get_layer("image_pooling")(outputs["image_sequence_output"])
    np.testing.assert_allclose(outputs["image_pooled_output"], pooled, atol=1e-6)
    kernel, bias = model.get_layer("text_projection").get_weights()
    pooled = np.asarray(outputs["text_sequence_output"])[:, -1] @ kernel + bias
    np.testing.assert_allclose(outputs["text_pooled_output"], pooled, atol=1e-6)
    unit = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    np.testing.assert_allclose(outputs["text_embeddings"], unit, atol=1e-6)
    np.testing.assert_array_equal(model.text(token_ids)["embeddings"], outputs["text_embeddings"])
    np.testing.assert_array_equal(model.image(images)["embeddings"], outputs["image_embeddings"])


def test_another_width_than_the_images_is_refused():
    with pytest.raises(ValueError, match="`embedding_dim` must be `image_dim`, 8; it is 4"):
        dataclasses.replace(SMALL, embedding_dim=4)
