"""Decoding: from a model's logits to sequences."""

from keras_tfm.generation.loop import greedy_decode
