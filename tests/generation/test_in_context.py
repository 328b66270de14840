"""Copying in context (Olsson et al. 2022, "In-context Learning and Induction Heads").

A tiny GPT-2 continues a random segment that stands once in its prompt, and that it never saw in training.
"""

import keras
import numpy as np
import pytest

from keras_tfm.generation import Decoder
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import GPT2, GPT2Config

SIZE, LENGTH = 16, 15  # tokens of the vocabulary, and of a row


def segments(count, length, draw):
    """Random tokens, none twice in a row of them: (count, length)."""
    return draw.permuted(np.tile(np.arange(SIZE), (count, 1)), axis=1)[:, :length]


@pytest.mark.slow
def test_a_segment_seen_once_is_continued():
    keras.utils.set_random_seed(0)
    draw = np.random.default_rng(0)
    widths = {"vocabulary_size": SIZE, "max_length": LENGTH + 1, "num_layers": 2, "dim": 64, "num_heads": 2}
    no_dropout = dict.fromkeys(("dropout", "attention_dropout", "embedding_dropout"), 0.0)
    model = LanguageModel(GPT2(GPT2Config(**widths, **no_dropout)))
    model.compile(keras.optimizers.Adam(6e-3), TokenCrossEntropy(), jit_compile=True)
    # A row repeats a segment of 5 to 8 tokens as often as it fits, so that no fixed distance is to be learnt.
    num_rows, place = 64 * 800, np.arange(LENGTH + 1)
    periods = draw.integers(5, 9, (num_rows, 1))
    rows = np.take_along_axis(segments(num_rows, 8, draw), place % periods, axis=1)
    is_repeated = (place[1:] > periods).astype("float32")  # its first token cannot be known
    model.fit({"token_ids": rows[:, :-1]}, rows[:, 1:], sample_weight=is_repeated, batch_size=64, verbose=0)

    segment, other = segments(200, 7, draw), segments(200, 7, draw)
    prompts = np.concatenate([segment, segment[:, :3]], axis=1)
    answers = Decoder(model, 4)(prompts).numpy()[:, 10:]
    assert (answers == segment[:, 3:]).mean() > 0.4  # by chance 1 / 16
    prompts = np.concatenate([other, segment[:, :3]], axis=1)
    answers = Decoder(model, 4)(prompts).numpy()[:, 10:]
    assert (answers == segment[:, 3:]).mean() < 0.15  # where the segment did not stand before
