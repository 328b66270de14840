"""DistilBERT: the contract, the paper's size, half of a BERT."""

import dataclasses

import numpy as np

from keras_tfm.heads import Classifier
from keras_tfm.models import BERT, DistilBERT, DistilBERTConfig
from tests import contract
from tests.contract import Case, ids, mask
from tests.models.test_bert import TINY as BERT_TINY

TINY = DistilBERTConfig(11, num_layers=2, dim=8, num_heads=2, intermediate_dim=12, max_length=16)
ONE_BLOCK = dataclasses.replace(TINY, num_layers=1)  # enough under a head
INPUTS = {"token_ids": ids("T", 11), "padding_mask": mask("T")}
TWO_LAYERS = {"hidden_dim": 8, "dropout": 0.2, "activation": "relu"}

test_contract = contract.check_family(
    Case("DistilBERT", lambda: DistilBERT(TINY), INPUTS, attends=True),
    Case("Classifier", lambda: Classifier(DistilBERT(ONE_BLOCK), 3, **TWO_LAYERS), INPUTS, attends=True),
)


def test_parameters_of_the_published_size(no_allocation):
    model = DistilBERT.from_size("base")
    assert contract.num_parameters(model.trainable_weights) == 66_362_880


def test_it_is_a_bert_whose_only_segment_is_zero():
    bert, model = BERT(BERT_TINY), DistilBERT(TINY)
    contract.randomise(bert, seed=0)
    weights = {weight.path: weight.numpy() for weight in bert.weights}
    weights["embedding/segment/embeddings"][0] = 0
    bert.embedding.segment.set_weights([weights["embedding/segment/embeddings"]])
    for weight in model.weights:
        if "float" in weight.dtype:
            weight.assign(weights[weight.path])
    batch = {"token_ids": np.array([[1, 2, 3, 4]])}
    np.testing.assert_allclose(model(batch)["sequence_output"], bert(batch)["sequence_output"], atol=1e-6)


def test_the_classifiers_hidden_layer_is_rectified():
    model = Classifier(DistilBERT(TINY), 3, **TWO_LAYERS)
    contract.randomise(model, seed=0)
    batch = {"token_ids": np.array([[1, 2, 3]])}
    first = np.asarray(model.backbone(batch)["sequence_output"])[:, 0]
    hidden, hidden_bias, output, output_bias = model.head.get_weights()
    expected = np.maximum(first @ hidden + hidden_bias, 0) @ output + output_bias
    np.testing.assert_allclose(model(batch), expected, atol=1e-5)
