"""MMT: the contract, its size, what each token reads, experts that say nothing of a video."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.models import BERT, MMT, BERTConfig, MMTConfig
from keras_tfm.models.multimodal.mmt import ExpertTokens, GatedEmbedding
from tests import contract
from tests.contract import Case, floats, ids, mask, randomise

TEXT = BERTConfig(11, 1, 6, 2, 5, max_length=16, num_segments=0, pooler=False)
SMALL = MMTConfig(TEXT, ("face", "sound"), (5, 3), 6, 2, 8, 2, 7)
INPUTS = {
    "face_features": floats("S", 5),
    "face_feature_mask": mask("S"),
    "face_feature_times": ids("S", 6),
    "sound_features": floats("M", 3),
    "sound_feature_mask": mask("M"),
    "sound_feature_times": ids("M", 6),
    "token_ids": ids("T", 11),
    "padding_mask": mask("T"),
}
CASE = Case("MMT", lambda: MMT(SMALL), INPUTS, attends=True)
test_contract = contract.check_family(CASE)


@pytest.fixture(scope="module")
def model():
    model = MMT(SMALL)
    randomise(model, 1)
    return model


def draw():
    return {name: x for name, x in CASE.draw().items() if name.split("_")[0] in SMALL.experts}


def vectors(model, inputs):
    return np.asarray(model.video(inputs)["embeddings"])


def test_the_published_size(no_allocation):
    """Counted by hand, but for BERT-base-cased: 108,310,272 weights with its pooler."""

    def dense(rows, columns):
        return rows * columns + columns

    bert, dim = 108_310_272 - dense(768, 768), 512
    block = 4 * dense(dim, dim) + dense(dim, 3072) + dense(3072, dim) + 4 * dim
    experts = sum(dense(width, dim) + dim for width in (512, 300, 2048, 1024, 2208, 300, 128))
    video = experts + 32 * dim + 2 * dim + 4 * block
    unit = dense(768, dim) + dim * dim + 2 * dim  # a gate without a bias, and the scale and shift of its norm
    count = sum(int(np.prod(weight.shape)) for weight in MMT.from_size("base").trainable_weights)
    assert count == bert + video + 7 * unit + dense(768, 7)


def test_tokens_by_hand():
    """Two features of an expert, the second only to fill up: the maximum, and both."""
    layer = ExpertTokens(2, num_seconds=9)
    features = np.array([[[3.0, -4.0], [9.0, 9.0]]], "float32")
    seen, times = np.array([[True, False]]), np.array([[7, 100]])
    layer(features, seen, np.zeros((1, 2), "int32"))  # builds it
    layer.projection.kernel.assign(np.eye(2))
    layer.expert.assign([10.0, 20.0])
    x, is_there, places = layer(features, seen, times)
    np.testing.assert_allclose(x[0, :2], [[10.6, 19.2]] * 2, rtol=1e-6)
    np.testing.assert_array_equal(is_there, [[True, True, False]])
    np.testing.assert_array_equal(places, [[0, 9, 1]])  # the whole, the seventh second, none


def test_a_gated_unit_by_its_formula():
    rng = np.random.default_rng(0)
    layer, x = GatedEmbedding(2, 3), rng.normal(size=(4, 5)).astype("float32")
    layer(x)  # builds it
    randomise(layer, 1)
    project, gate, norm = layer.projection, layer.gate, layer.norm
    for n, found in enumerate(np.moveaxis(np.asarray(layer(x)), 1, 0)):
        columns = slice(3 * n, 3 * n + 3)
        y = x @ np.asarray(project.kernel)[:, n] + np.asarray(project.bias)[n]
        z = y @ np.asarray(gate.kernel)[n] - np.asarray(norm.moving_mean)[columns]
        z = z / np.sqrt(np.asarray(norm.moving_variance)[columns] + 1e-5)
        z = z * np.asarray(norm.gamma)[columns] + np.asarray(norm.beta)[columns]
        y = y / (1 + np.exp(-z))
        np.testing.assert_allclose(found, y / np.linalg.norm(y, axis=-1, keepdims=True), atol=1e-5)


def test_features_are_a_set_with_times(model):
    inputs = draw() | {"face_feature_mask": np.ones((3, 7), "bool")}
    before, names = vectors(model, inputs), ("face_features", "face_feature_times")
    turned = {name: inputs[name][:, ::-1] for name in names}
    np.testing.assert_allclose(vectors(model, inputs | turned), before, atol=1e-5)
    later = {"face_feature_times": (inputs["face_feature_times"] + 1) % 6}
    assert np.abs(vectors(model, inputs | later) - before).max((1, 2)).min() > 1e-3


def test_times_are_unknown_by_default(model):
    inputs = draw()
    unknown = {
        f"{name}_feature_times": -np.ones_like(inputs[f"{name}_feature_times"]) for name in SMALL.experts
    }
    without = {name: x for name, x in inputs.items() if "times" not in name}
    np.testing.assert_array_equal(vectors(model, without), vectors(model, inputs | unknown))


def test_an_expert_that_says_nothing_is_as_none(model):
    """Of the same weights a model without it gives the same vectors, whatever stands in its features."""
    smaller = MMT(dataclasses.replace(SMALL, experts=("face",), expert_dims=(5,)))
    weights = {weight.path: weight for weight in model.weights}
    for weight in smaller.video.weights:
        weight.assign(weights[weight.path])
    inputs = draw() | {"sound_feature_mask": np.zeros((3, 3), "bool")}
    inputs["sound_features"] *= np.nan
    found = model.video(inputs)
    np.testing.assert_array_equal(found["experts"], [[1, 0]] * 3)
    alone = vectors(smaller, {name: x for name, x in inputs.items() if name.startswith("face")})
    np.testing.assert_allclose(found["embeddings"][:, :1], alone, atol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_video_without_any_feature_has_finite_gradients(jit_compile):
    """With fresh weights, so that projections of zeros are zeros."""
    model, inputs = MMT(SMALL).video, draw()
    inputs |= {name: np.zeros_like(x) for name, x in inputs.items() if x.dtype == bool}

    @tf.function(autograph=False, jit_compile=jit_compile)
    def learnt(inputs):
        with tf.GradientTape() as tape:
            found = model(inputs, training=True)
            loss = tf.reduce_sum(found["embeddings"] * np.arange(8, dtype="float32"))
        return found, loss, tape.gradient(loss, model.trainable_weights)

    found, loss, gradients = learnt(inputs)
    np.testing.assert_array_equal(found["experts"], np.zeros((3, 2)))
    assert np.isfinite(loss) and all(
        np.isfinite(tf.convert_to_tensor(gradient)).all() for gradient in gradients
    )


def test_a_start_from_bert():
    """One with a pooler, which is not needed."""
    bert = BERT(dataclasses.replace(TEXT, pooler=True), dtype="mixed_bfloat16")
    randomise(bert, 3)
    made = MMT.around(bert, experts=("sound",), expert_dims=(3,), dim=8, num_heads=2, num_layers=1)
    assert made.dtype_policy.name == "mixed_bfloat16"
    weights = {weight.path: weight for weight in made.weights}
    for weight in bert.weights:
        if "pooler" not in weight.path:
            np.testing.assert_array_equal(weights[weight.path], weight)


def test_a_time_outside_of_the_table_is_refused(model):
    inputs = draw()
    inputs["face_feature_times"][0, 0] = 6
    with pytest.raises(ValueError, match=r"`feature_times` must lie in \[0, 6\); one of them is 6"):
        vectors(model, inputs)


@pytest.mark.parametrize("names", [("a", "a"), ("a",), ("a", "b c"), ()])
def test_experts_without_a_name_and_a_width_each_are_refused(names):
    with pytest.raises(ValueError, match="`experts` must be different names, one for each of `expert_dims`"):
        dataclasses.replace(SMALL, experts=names)
