"""Random pyramids of transformers beside ours: maps, gradients."""

import copy

import keras
import numpy as np
import tensorflow as tf
import torch

from keras_tfm.convert import keymap
from tests.parity.images import answer, assert_close, gradients_in_files


def check_maps(ours, theirs, stages, images):
    """The maps of ours are what `stages`, modules of theirs, give for `images`."""
    expected = []
    for stage in stages:
        stage.register_forward_hook(lambda *call: expected.append(call[-1]))
    answer(theirs, images)
    maps = keras.tree.flatten(keras.Model(ours.input, ours.maps)({"images": images}))
    for x, state in zip(maps, expected, strict=True):
        state = (state[0] if isinstance(state, tuple) else state).detach().numpy().reshape(x.shape)
        assert np.abs(x - state).max() <= 1e-5 * max(1, np.abs(state).max())


def check_gradients(theirs, ours, family, images, labels, folder, loss_of=None):
    """Gradients of a classifier's loss, or of `loss_of(labels, logits)`, beside theirs in float64."""
    loss_of = loss_of or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    exact = copy.deepcopy(theirs).double()
    for model in (exact, theirs):
        loss = answer(model, images, labels=torch.from_numpy(labels)).loss
        loss.backward()
    with tf.GradientTape() as tape:
        logits = ours({"images": images})
        total = loss_of(labels, logits)
    assert_close(total, loss)
    gradients = tape.gradient(total, [weight.value for weight in ours.trainable_weights])
    for weight, gradient in zip(ours.trainable_weights, gradients, strict=True):
        weight.assign(tf.convert_to_tensor(gradient))  # so that the table names and turns them
    table = family.of(ours.backbone.config)
    (head,) = [head for head in table.heads.values() if head.model is type(ours)]
    actual = keymap.save(ours, table.rows_with(head, table.prefix))
    in_float32 = gradients_in_files(theirs, folder / "float32")
    for name, gradient in gradients_in_files(exact, folder / "float64").items():
        if name.endswith("num_batches_tracked"):
            continue
        error, rounding = (np.abs(x[name] - gradient).max() for x in (actual, in_float32))
        # One draw of torch's rounding is a rough measure of ours, which differs with the processor.
        assert error <= 1e-4 * np.abs(gradient).max() + 2e-6 + 4 * rounding, name
