"""Recurrent encoders and the gallery: contract, directions, padding, what each form of network can learn."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm.data import BERTTokenizer
from keras_tfm.layers import RecurrentEncoder
from keras_tfm.models import (
    Recurrent,
    RecurrentConfig,
    delayed_many_to_many,
    many_to_many,
    many_to_one,
    one_to_many,
    one_to_one,
)
from keras_tfm.tasks import TokenClassifier
from tests import contract
from tests.contract import Case, ids, mask, randomise

CONFIG = RecurrentConfig(11, dim=6, hidden_dim=4)

test_contract = contract.check_family(
    Case(
        "Recurrent",
        lambda: Recurrent(dataclasses.replace(CONFIG, cell="gru", num_layers=2)),
        {"token_ids": ids("T", 11), "padding_mask": mask("T")},
    ),
)


def new(**changes):
    model = Recurrent(dataclasses.replace(CONFIG, **changes))
    randomise(model, seed=1)
    return model


def read(model, token_ids):
    return model({"token_ids": token_ids})


@pytest.mark.parametrize("cell", ["simple", "lstm", "gru"])
def test_the_backward_half_is_the_forward_network_on_the_reversed_text(cell):
    """And the pooled output is [h_T forward, h_1 backward], not the last position's."""
    model = new(cell=cell)
    token_ids = np.random.randint(0, 11, (2, 5))
    both = model.encoder.layers[0]
    states = read(model, token_ids)["sequence_output"]
    both.backward_layer.set_weights(both.forward_layer.get_weights())
    mirrored = read(model, token_ids[:, ::-1])["sequence_output"]
    backward = read(model, token_ids)["sequence_output"][..., 4:]
    np.testing.assert_allclose(backward, mirrored[:, ::-1, :4], atol=1e-6)
    np.testing.assert_allclose(read(model, token_ids)["sequence_output"][..., :4], states[..., :4], atol=1e-6)
    pooled = read(model, token_ids)["pooled_output"].numpy()
    states = read(model, token_ids)["sequence_output"].numpy()
    np.testing.assert_allclose(pooled, np.concatenate([states[:, -1, :4], states[:, 0, 4:]], -1), atol=1e-6)
    assert np.abs(pooled - states[:, -1]).max() > 1e-3


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_future_changes_two_directions_alone(bidirectional):
    """And the same weights read any length, and give as many states."""
    model = new(bidirectional=bidirectional)
    for length in (3, 9):
        assert read(model, np.ones((1, length), int))["sequence_output"].shape[1] == length
    token_ids = np.array([[1, 2, 3, 4, 5]])
    changed = np.array([[1, 2, 3, 9, 5]])
    difference = np.abs(
        read(model, token_ids)["sequence_output"] - read(model, changed)["sequence_output"]
    ).max(-1)[0]
    assert difference[3] > 1e-3 and (difference[:3] > 1e-6).all() == bidirectional
    assert bidirectional or (difference[:3] == 0).all()


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_padding_changes_nothing_wherever_it_stands(cell):
    model = new(cell=cell, num_layers=2)
    row = np.array([[3, 1, 2]])
    alone = read(model, row)
    for before, behind in ((0, 2), (2, 0), (1, 1)):
        token_ids = np.pad(row, ((0, 0), (before, behind)), constant_values=7)
        padding_mask = np.pad(np.ones((1, 3), bool), ((0, 0), (before, behind)))
        padded = model({"token_ids": token_ids, "padding_mask": padding_mask})
        np.testing.assert_allclose(padded["pooled_output"], alone["pooled_output"], atol=1e-6)
        kept = padded["sequence_output"][:, before : before + 3]
        np.testing.assert_allclose(kept, alone["sequence_output"], atol=1e-6)


def test_order_counts():
    model = new()
    states = [read(model, np.array([row]))["pooled_output"] for row in ([1, 2, 3], [2, 1, 3])]
    assert np.abs(states[0] - states[1]).max() > 1e-3


def test_vectors_are_what_the_embeddings_begin_with():
    vectors = np.random.normal(size=(11, 6)).astype("float32")
    model = Recurrent(CONFIG, vectors)
    np.testing.assert_array_equal(model.embedding(np.arange(11)[None])[0], vectors)
    assert Recurrent.from_config(model.get_config()).count_params() == model.count_params()
    with pytest.raises(ValueError, match=r"`vectors` must have the shape \(11, 6\); it is \(6, 11\)"):
        Recurrent(CONFIG, vectors.T)


def test_without_recurrence_a_simple_network_is_one_layer_applied_to_each_step():
    """And two layers are one after the other."""
    model = many_to_many(3, 2, hidden_dim=4, cell="simple", num_layers=2)
    randomise(model, seed=1)
    x = np.random.normal(size=(2, 5, 3)).astype("float32")
    first, second = (layer.cell for layer in model.get_layer("encoder").layers)
    expected = keras.Sequential(
        [keras.layers.SimpleRNN(4, return_sequences=True), keras.layers.SimpleRNN(4, return_sequences=True)]
    )
    expected(x)
    expected.set_weights([*first.get_weights(), *second.get_weights()])
    np.testing.assert_allclose(model(x), model.get_layer("output")(expected(x)), atol=1e-6)
    for cell in (first, second):
        cell.recurrent_kernel.assign(np.zeros((4, 4)))
    by_steps = x
    for cell in (first, second):
        by_steps = np.tanh(by_steps @ cell.kernel.numpy() + cell.bias.numpy())
    np.testing.assert_allclose(model(x), model.get_layer("output")(by_steps), atol=1e-6)


def fit(model, inputs, targets, loss, steps=200, learning_rate=0.02):
    """The loss of a batch that is learnt by heart."""
    model.compile(keras.optimizers.Adam(learning_rate), loss)
    step = tf.data.Dataset.from_tensors((inputs, targets)).repeat(steps)
    return model.fit(step, shuffle=False, verbose=0) and model.evaluate(inputs, targets, verbose=0)


@pytest.mark.slow
def test_one_to_many_writes_of_a_vector():
    """A caption of each of two vectors."""
    model = one_to_many(3, 6, dim=8, hidden_dim=12)
    x = np.array([[1, 0, 0], [0, 1, 0]], "float32")
    targets = np.array([[2, 3, 4, 5], [4, 4, 2, 3]])
    tokens = np.concatenate([[[1], [1]], targets[:, :-1]], axis=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert fit(model, {"x": x, "token_ids": tokens}, targets, loss) < 0.05


def test_a_copy_at_a_lag_is_learnt():
    """y_t = x_(t-3), for which three steps have to be remembered."""
    x = np.random.choice([-1.0, 1.0], size=(64, 12, 1)).astype("float32")
    y = np.concatenate([np.zeros((64, 3, 1), "float32"), x[:, :-3]], axis=1)
    assert fit(many_to_many(1, 1, hidden_dim=16, cell="gru"), x, y, "mse") < 0.05


@pytest.mark.parametrize(
    "make",
    [
        lambda cell: many_to_one(2, 1, cell=cell),
        lambda cell: many_to_many(2, 1, cell=cell),
        lambda cell: one_to_many(2, 5, cell=cell),
        lambda cell: delayed_many_to_many(2, 1, cell=cell),
        lambda cell: Recurrent.from_size("tiny", cell=cell),
        lambda cell: RecurrentEncoder(4, cell=cell),
    ],
)
def test_an_unknown_cell_is_named(make):
    for cell in ("foo", ["lstm"]):
        with pytest.raises(ValueError, match=r"`cell` must be .*; it is .*(foo|lstm)"):
            make(cell)


@pytest.mark.slow
def test_many_to_one_and_back():
    """A sum of features over time, and a sequence of another length than what was read."""
    x = np.random.uniform(-1, 1, size=(64, 6, 2)).astype("float32")
    total = x.sum(axis=(1, 2), keepdims=True)[:, 0]
    assert fit(many_to_one(2, 1, bidirectional=True), x, total, "mse") < 0.05
    model = delayed_many_to_many(2, 1, hidden_dim=24)
    outputs = np.cumsum(np.repeat(total[:, None] / 3, 3, axis=1), axis=1)  # T' = 3 of T = 6
    before = np.concatenate([np.zeros_like(outputs[:, :1]), outputs[:, :-1]], axis=1)
    assert fit(model, {"x": x, "before": before}, outputs, "mse") < 0.05


def test_one_to_one_has_no_memory():
    model = one_to_one(3, 2)
    x = np.random.normal(size=(4, 3))
    np.testing.assert_allclose(model(x)[1:], model(x[1:]), atol=1e-6)


@pytest.mark.slow
def test_general_is_a_film_a_company_or_a_word():
    """What follows decides: reading from left to right alone gives "General" one tag in all three."""
    words = [["General", "Commander"], ["General", "Company"], ["General", "relativity"]]
    tags = [["FILM", "FILM"], ["ORG", "ORG"], ["O", "O"]]
    keras.utils.set_random_seed(0)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "general", "commander", "company", "relativity"]
    both, forward = (
        TokenClassifier.from_backbone(
            Recurrent(RecurrentConfig(len(pieces), dim=16, hidden_dim=16, bidirectional=two, dropout=0.0)),
            BERTTokenizer(pieces),
            (words, tags),
            max_length=16,
            head={"dropout": 0.0},
        )
        for two in (True, False)
    )
    both.fit((words * 40, tags * 40), (words, tags), epochs=2, batch_tokens=60, learning_rate=2e-2)
    assert both.predict(words) == tags
    randomise(forward.model, seed=1)  # whatever it has learnt
    assert len({row[0] for row in forward.predict(words)}) == 1


@pytest.mark.slow
def test_a_blank_is_filled_by_what_stands_on_both_sides():
    """Not or very tired, but very tired "because I did not sleep"; what stands on the left is the same."""
    words = ["_", "i", "am", "tired", "because", "did", "not", "sleep", "very"]
    short, long = ["i", "am", "_", "tired"], ["i", "am", "_", "tired", "because", "i", "did", "not", "sleep"]
    x = np.zeros((3, 9, len(words)), "float32")
    for row, text in zip(x, (short, short, long), strict=True):
        row[np.arange(len(text)), [words.index(word) for word in text]] = 1
    not_, very = words.index("not"), words.index("very")
    labels = np.repeat([[not_], [very], [very]], 9, axis=1)
    is_blank = np.tile(np.arange(9) == 2, (3, 1)).astype("float32")
    both, forward = (many_to_many(len(words), len(words), 16, bidirectional=two) for two in (True, False))
    both.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    both.fit(tf.data.Dataset.from_tensors((x, labels, is_blank)).repeat(60), shuffle=False, verbose=0)
    chances = ops.convert_to_numpy(ops.softmax(both(x)[:, 2]))  # (3, V)
    np.testing.assert_allclose(chances[1:, [not_, very]], [[0.5, 0.5], [0, 1]], atol=0.1)
    randomise(forward, seed=1)  # whatever it has learnt
    np.testing.assert_array_equal(forward(x)[1, 2], forward(x)[2, 2])
