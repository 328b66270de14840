"""Gradients of a language model of ours beside theirs, by the names of their weights."""

import numpy as np
import tensorflow as tf
import torch

from keras_tfm.convert import keymap


def assert_gradients_agree(ours, theirs, inputs, logits, mask, family, rng):
    """The gradients of all weights for a random one of the `logits`, theirs (B, T, V), where `mask` (B, T) is
    True, within 1e-4 of the largest.
    """
    upstream = rng.normal(size=tuple(logits.shape)).astype("float32") * mask[..., None]
    (logits * torch.from_numpy(upstream)).sum().backward()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(ours(inputs) * upstream)
    gradients = tape.gradient(loss, [weight.value for weight in ours.trainable_weights])
    for weight, gradient in zip(ours.trainable_weights, gradients, strict=True):
        weight.assign(tf.convert_to_tensor(gradient))  # so that the table names them
    family = family.of(ours.backbone.config)
    actual = keymap.save(ours, family.rows_with(next(iter(family.heads.values())), family.prefix))
    actual.pop("final_logits_bias", None)  # BART's, which is not trained
    expected = {key: parameter.grad.numpy() for key, parameter in theirs.named_parameters()}
    assert actual.keys() == expected.keys()
    for key, gradient in expected.items():
        assert np.abs(actual[key] - gradient).max() <= 1e-4 * max(1, np.abs(gradient).max()), key
