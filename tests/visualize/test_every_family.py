"""In every family the recorded attention weights are those that the layers average by.

They are computed once more, in float64, from the scores that the layers compute.
"""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_tfm import models
from keras_tfm.layers import Attention
from keras_tfm.tasks import IMAGE_FAMILIES
from keras_tfm.visualize import record_attention
from tests import contract

SMALL = {"vocabulary_size": 9, "dim": 8, "num_heads": 2, "intermediate_dim": 6, "num_layers": 2}
TEXT_FAMILIES = ("ALBERT", "BART", "BERT", "DeBERTa", "DistilBERT", "GPT2", "RoBERTa", "T5", "Transformer")
WITHOUT_ATTENTION = ("bit", "mlpmixer", "resnet")
# (Family, whether `make test` asks it): one of each kind of attention is enough there.
QUICK = ("BERT", "T5", "xcit", "swinv2")
FAMILIES = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name in (*TEXT_FAMILIES, *(name for name in IMAGE_FAMILIES if name not in WITHOUT_ATTENTION))
]


def small_model(name):
    if name in IMAGE_FAMILIES:
        family = IMAGE_FAMILIES[name]
        return family(models.tiny_config(family))
    config = getattr(models, name).config_class
    fields = {field.name for field in dataclasses.fields(config)}
    return getattr(models, name)(config(**{key: SMALL[key] for key in SMALL.keys() & fields}))


def draw(model):
    """Random images or ids; what else the model takes it fills in."""
    rng = np.random.default_rng(0)
    if "images" in model.input:
        return {"images": rng.normal(size=(2, *model.input["images"].shape[1:])).astype("float32")}
    names = [name for name in model.input if name.endswith("token_ids")]
    return {name: rng.integers(4, SMALL["vocabulary_size"], (2, 5)) for name in names}


def softmax(scores, mask):
    """In float64; 0 where `mask` is False."""
    scores = np.asarray(scores, "float64")
    parts = np.exp(scores - scores.max(-1, keepdims=True)) * (1 if mask is None else np.asarray(mask))
    return parts / parts.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", FAMILIES)
def test_recorded_weights_are_those_that_the_layers_average_by(name, monkeypatch):
    model = small_model(name)
    contract.randomise(model, seed=1)
    weighed, averaged = [], []
    weigh, average = Attention.weigh, Attention.average

    def spy_on_weigh(layer, scores, mask=None, training=None):
        weights = weigh(layer, scores, mask, training)
        weighed.append((softmax(scores, mask), weights, layer.on_weights is None))
        return weights

    def spy_on_average(layer, weights, value, *positions, **options):
        heads = average(layer, weights, value, *positions, **options)
        if layer.position is None:
            averaged.append((np.asarray(weights, "float64") @ np.asarray(value, "float64"), heads))
        return heads

    monkeypatch.setattr(Attention, "weigh", spy_on_weigh)
    monkeypatch.setattr(Attention, "average", spy_on_average)
    with record_attention(model) as recorded:
        model(draw(model))
    recorded = [w for found in recorded.values() for w in (found if isinstance(found, list) else [found])]
    assert len(recorded) == len(weighed) > 0
    by_place = sorted(map(id, recorded))
    assert by_place == sorted(id(weights) for _, weights, _ in weighed)
    for expected, weights, is_softmax in weighed:
        if is_softmax:
            np.testing.assert_allclose(ops.convert_to_numpy(weights), expected, atol=1e-6)
    for expected, heads in averaged:
        scale = max(1, np.abs(expected).max())
        np.testing.assert_allclose(ops.convert_to_numpy(heads) / scale, expected / scale, atol=1e-6)
