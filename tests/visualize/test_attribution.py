"""Gradients times inputs and times attention, against gradients found another way; attention rolled out."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import models, tasks
from keras_tfm.visualize import attention_gradients, attention_rollout, input_attribution, look
from tests import contract
from tests.visualize.test_look import classifier, translator


@pytest.fixture(scope="module")
def task():
    task = classifier()
    contract.randomise(task.model, seed=1)
    return task


def test_gradients_at_the_first_hidden_states(task):
    """The rest of the model, as one of its own, has the same gradient."""
    task.model.trainable = False
    found = input_attribution(task, "the cats sat")["encoder"]
    task.model.trainable = True
    view = look(task, "the cats sat")
    backbone = task.model.backbone
    inputs = [backbone.hidden_states["encoder"][0], backbone.input["padding_mask"]]
    rest = keras.Model(inputs, task.model.output)
    state = tf.constant(view.hidden_states["encoder"][:1])  # (1, T, D)
    with tf.GradientTape() as tape:
        tape.watch(state)
        logit = tf.reduce_max(rest([state, tf.ones(state.shape[:2], "bool")]))
    expected = tf.reduce_sum(tape.gradient(logit, state) * state, -1)[0]
    assert found.tokens == view.tokens
    np.testing.assert_allclose(found.score, logit, rtol=1e-5)
    np.testing.assert_allclose(found.values, expected, atol=1e-4 * np.abs(expected).max())


def test_the_tokens_of_an_image_are_its_patches_or_cells():
    vit = tasks.ImageClassifier.from_size("tiny", ["a", "b"], image_size=8, patch_size=4)
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 3), "uint8")
    found = input_attribution(vit, image)["encoder"]
    assert (
        found.tokens == ["[class]", "0,0", "0,1", "1,0", "1,1"] == look(vit, image).attention[0].query_tokens
    )
    assert found.values.shape == (5,)
    pyramid = tasks.ImageClassifier(models.MiT(models.tiny_config(models.MiT)), ["a", "b"])
    image = np.zeros((32, 32, 3), "uint8")
    found = input_attribution(pyramid, image)["encoder"]
    assert found.tokens[:2] == ["0,0", "0,1"] and len(found.tokens) == len(found.values) == 16 * 16


def test_gradients_at_the_weights(task):
    """A weight that is moved moves the logit accordingly."""
    ((path, found),) = attention_gradients(task, "the cats sat").items()
    (view,) = look(task, "the cats sat").attention
    assert path == view.name
    (layer,) = (layer for layer in task.model.backbone._flatten_layers() if layer.path == path)
    inputs, change, logits = {"token_ids": np.array([[2, 5, 6, 9, 7, 3]])}, np.zeros((1, 2, 6, 6)), []
    for by in (0.01, -0.01):
        change[0, 1, 2, 3] = by
        layer.on_weights = lambda weights, training=None: weights + change.astype("float32")
        logits.append(np.max(task.model(inputs)))
    layer.on_weights = None
    gradient = (logits[0] - logits[1]) / 0.02
    np.testing.assert_allclose(found[0, 1, 2, 3], view.weights[1, 2, 3] * gradient, rtol=2e-2, atol=1e-5)


def test_a_block_that_is_applied_twice_has_a_name_for_each_call():
    task = classifier(models.ALBERT, "base", embedding_dim=4, num_layers=2)
    names = list(attention_gradients(task, "the cats sat"))
    assert names == [view.name for view in look(task, "the cats sat").attention]
    assert [name[-9:] for name in names] == [" (1 of 2)", " (2 of 2)"]


def test_both_sides_of_an_encoder_decoder():
    task = translator(num_layers=1, num_heads=2, intermediate_dim=16)
    found = input_attribution(task, "the cat", "le chat")
    view = look(task, "the cat", "le chat")
    assert found["encoder"].tokens == view.tokens
    assert found["decoder"].tokens == view.target_tokens
    assert all(np.abs(side.values).max() > 0 for side in found.values())
    chosen = input_attribution(task, "the cat", "le chat", score=lambda logits: logits[0, 0, 5])
    np.testing.assert_array_equal(chosen["decoder"].values[1:], 0)  # later tokens are hidden from the first


def test_a_model_that_folds_its_inputs_is_refused():
    base = classifier()
    examples = ["the cat"], [["sat", "dog"]], [0]
    choose = tasks.ChoiceAnswerer.from_backbone(base.model.backbone, base.tokenizer, examples, max_length=12)
    with pytest.raises(ValueError, match="in another form"):
        input_attribution(choose, ("the cat", "sat"))


def test_layers_are_multiplied():
    rng = np.random.default_rng(0)
    one, other = rng.dirichlet(np.ones(3), size=(2, 2, 4, 3))  # (B, H, T, T) each
    mixed = [np.eye(3) / 2 + weights.mean(1) / 2 for weights in (one, other)]
    flow = attention_rollout({"a": one, "b": other})
    np.testing.assert_allclose(flow, mixed[1] @ mixed[0])
    np.testing.assert_allclose(flow.sum(-1), 1)
    np.testing.assert_allclose(attention_rollout(one, residual=1), np.eye(3)[None].repeat(2, 0))
    with pytest.raises(ValueError, match="of one length"):
        attention_rollout({"a": one, "b": other[:, :, :2]})
    with pytest.raises(ValueError, match="`residual`"):
        attention_rollout(one, residual=2)
