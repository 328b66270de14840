"""The recurrent encoder-decoder: contract, decoding, and what the seed of attention was made for."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.generation import BeamSearch, Decoder, EndTokens
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from tests import contract
from tests.contract import Case, ids, mask, randomise

CONFIG = RecurrentSeq2SeqConfig(11, dim=6, hidden_dim=4)
INPUTS = {
    "token_ids": ids("S", 11),
    "padding_mask": mask("S"),
    "decoder_token_ids": ids("T", 11),
    "decoder_padding_mask": mask("T"),
}

test_contract = contract.check_family(
    Case(
        "RecurrentSeq2Seq",
        lambda: RecurrentSeq2Seq(dataclasses.replace(CONFIG, cell="gru")),
        INPUTS,
        causal="T",
        cache=lambda model, x, length: model.start(3, length, x),
    ),
)


def test_sizes_and_vocabularies():
    model = RecurrentSeq2Seq.from_size("tiny", vocabulary_size=50)
    assert model.embedding is model.output_embedding
    assert model.output["encoder_sequence_output"].shape == (None, None, 2 * model.config.hidden_dim)
    assert model.output["decoder_sequence_output"].shape == (None, None, model.config.dim)
    model = RecurrentSeq2Seq(dataclasses.replace(CONFIG, target_vocabulary_size=7))
    assert (model.embedding.vocabulary_size, model.output_embedding.vocabulary_size) == (11, 7)
    paper = RecurrentSeq2Seq.sizes["bahdanau"]
    assert (paper.dim, paper.hidden_dim, paper.cell, paper.num_layers) == (620, 1_000, "gru", 1)
    with pytest.raises(ValueError, match="lstm, gru; it is 'rnn'"):
        RecurrentSeq2Seq(dataclasses.replace(CONFIG, cell="rnn"))


def test_the_first_state_comes_from_the_encoder():
    model = RecurrentSeq2Seq(CONFIG)
    randomise(model, seed=1)
    token_ids = np.random.randint(0, 11, (3, 5))
    encoded, _ = model.encode(token_ids)
    summary = encoded[:, 0, CONFIG.hidden_dim :]  # the backward direction has read all
    hidden, memory = model.start(3, 4, {"token_ids": token_ids}).state
    expected = np.tanh(summary @ model.initial_state.kernel.numpy() + model.initial_state.bias.numpy())
    np.testing.assert_allclose(np.concatenate([hidden, memory], axis=-1), expected, atol=1e-6)


@pytest.mark.parametrize(("cell", "bidirectional"), [("lstm", False), ("lstm", True), ("gru", False)])
def test_without_attention_the_decoder_goes_on_from_the_last_states_exactly(cell, bidirectional):
    """h_T, and c_T of an LSTM, of each layer, after the last token that is no padding."""
    changes = {"cell": cell, "bidirectional": bidirectional, "attention": "none", "num_layers": 2}
    model = RecurrentSeq2Seq(dataclasses.replace(CONFIG, **changes))
    randomise(model, seed=1)
    sizes, token_ids = np.array([5, 2, 4]), np.random.randint(0, 11, (3, 5))
    context = {"token_ids": token_ids, "padding_mask": np.arange(5) < sizes[:, None]}
    state = model.start(3, 4, context).state
    for row, size in enumerate(sizes):
        x, expected = model.embedding(token_ids[row : row + 1, :size]), []
        for layer in model.encoder.layers:
            x, *last = layer(x)
            expected.extend(last[len(last) // 2 :] if bidirectional else last)
        for own, value in zip(state, expected, strict=True):
            np.testing.assert_allclose(own[row : row + 1], value, atol=1e-6)
    assert model.initial_state is None
    y = model({**context, "decoder_token_ids": token_ids})["decoder_sequence_output"]
    changed = model({**context, "token_ids": 10 - token_ids, "decoder_token_ids": token_ids})
    assert np.abs(y - changed["decoder_sequence_output"]).max() > 1e-3  # the states are all it knows


@pytest.mark.parametrize(
    ("jit_compile", "num_layers"), [(False, 2), pytest.param(True, 1, marks=pytest.mark.slow)]
)
def test_free_running_equals_a_pass_over_what_was_generated(jit_compile, num_layers):
    model = LanguageModel(RecurrentSeq2Seq(dataclasses.replace(CONFIG, num_layers=num_layers)))
    randomise(model, seed=1)
    token_ids = tf.random.uniform((3, 6), 0, 11, tf.int32)
    context = {"token_ids": token_ids, "padding_mask": tf.sequence_mask([6, 2, 4])}
    decoder = Decoder(model, 8)
    generated = tf.function(decoder, jit_compile=jit_compile)(tf.ones([3, 1], tf.int32), context=context)
    logits = model({**context, "decoder_token_ids": generated[:, :-1]})
    np.testing.assert_array_equal(np.argmax(logits, axis=-1), generated[:, 1:])


def test_beams_share_the_context():
    """Each result's score is what the whole model says of it."""
    model = LanguageModel(RecurrentSeq2Seq(CONFIG))
    randomise(model, seed=1)
    context = {
        "token_ids": tf.random.uniform((3, 6), 0, 11, tf.int32),
        "padding_mask": tf.sequence_mask([6, 2, 4]),
    }
    rows, scores = BeamSearch(model, 5, 3).search(tf.ones([3, 1], tf.int32), context=context)
    for beam in range(3):
        tokens = rows[:, beam].numpy()
        log_p = tf.nn.log_softmax(model({**context, "decoder_token_ids": tokens[:, :-1]})).numpy()
        expected = np.take_along_axis(log_p, tokens[:, 1:, None], -1)[..., 0].mean(1)
        np.testing.assert_allclose(scores[:, beam], expected, rtol=1e-4)


@pytest.mark.slow
def test_two_tasks_of_unequal_lengths_are_memorised():
    pairs = [
        ("translate: What time is it ?", "Τι ώρα είναι ;"),
        ("answer: What time is it ?", "It is quarter to five ."),
    ]
    words = [
        "<pad>",
        "<start>",
        "<end>",
        *sorted({word for pair in pairs for text in pair for word in text.split()}),
    ]
    sources, targets = (
        [[words.index(word) for word in text.split()] for text in side] for side in zip(*pairs, strict=True)
    )
    targets = [[1, *target, 2] for target in targets]

    def padded(rows):
        return keras.utils.pad_sequences(rows, padding="post")

    batch = {"token_ids": padded(sources), "decoder_token_ids": padded([row[:-1] for row in targets])}
    labels = padded([row[1:] for row in targets])
    batch["decoder_padding_mask"] = labels > 0
    model = LanguageModel(
        RecurrentSeq2Seq(RecurrentSeq2SeqConfig(len(words), dim=16, hidden_dim=24, dropout=0.0))
    )
    model.compile(keras.optimizers.Adam(0.02), TokenCrossEntropy())
    for _ in range(40):
        model.train_on_batch(batch, labels, sample_weight=(labels > 0).astype("float32"))
    context = {"token_ids": tf.constant(batch["token_ids"])}
    answers = Decoder(model, 9, stop=EndTokens(2))(tf.ones([2, 1], tf.int32), context=context).numpy()
    texts = [" ".join(words[i] for i in row if i > 2) for row in answers]
    assert texts == [target for _, target in pairs]
