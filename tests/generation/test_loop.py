"""The decoding loop: what it feeds, when it stops, and that a cache changes nothing."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.generation import greedy_decode
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import Transformer, TransformerConfig
from tests import contract

START, END, PAD = 1, 2, 0


# The loop itself -------------------------------------------------------------------------------------


class Scripted:
    """Says the rows of `script` whatever it is told, and remembers what that was."""

    def __init__(self, script, size=10):
        self.script = tf.constant(script)
        self.size = size
        self.told = []

    def start(self, batch_size, max_length, context):
        return tf.constant(0)

    def step(self, token_ids, cache):
        self.told.append(token_ids)
        return tf.one_hot(self.script[:, cache], self.size)[:, None], cache + 1


def decoded(script, max_length):
    model = Scripted(script)
    rows = greedy_decode(model, None, len(script), max_length, START, END, PAD)
    return rows.numpy(), model


def test_each_answer_is_the_next_question():
    rows, model = decoded([[5, 6, 7], [8, 9, 5]], 3)
    np.testing.assert_array_equal(rows, [[START, 5, 6, 7], [START, 8, 9, 5]])
    np.testing.assert_array_equal(np.concatenate(model.told, axis=1), rows[:, :-1])


def test_a_row_that_ended_is_padded_while_others_go_on():
    rows, _ = decoded([[5, END, 7, 7], [8, 9, 5, END]], 4)
    np.testing.assert_array_equal(rows, [[START, 5, END, PAD, PAD], [START, 8, 9, 5, END]])


def test_decoding_stops_when_every_row_has_ended():
    rows, model = decoded([[5, END, 7, 7, 7, 7], [END, 9, 5, 5, 5, 5]], 6)
    assert len(model.told) == 2
    np.testing.assert_array_equal(rows[:, 3:], np.full((2, 4), PAD))


@pytest.mark.parametrize("max_length", [1, 2])
def test_a_row_without_end_is_cut(max_length):
    rows, model = decoded([[5, 6, 7]], max_length)
    np.testing.assert_array_equal(rows, [[START, 5, 6][: 1 + max_length]])
    assert len(model.told) == max_length


# With a Transformer ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    """Its weights are a draw that says much: most random models repeat one word."""
    config = TransformerConfig(11, 13, num_layers=1, dim=8, num_heads=2, hidden_dim=9, normalize_first=True)
    model = LanguageModel(Transformer(config), tied=False)
    contract.randomise(model, seed=8)
    return model


@pytest.fixture(scope="module")
def context():
    rng = np.random.default_rng(0)
    mask = np.arange(6) < np.array([6, 2, 4, 5])[:, None]
    return {"token_ids": rng.integers(3, 11, (4, 6), "int32") * mask, "padding_mask": mask}


MAX_LENGTH = 9


def greedy(model, context, end_id=END):
    return greedy_decode(model, context, tf.shape(context["token_ids"])[0], MAX_LENGTH, START, end_id, PAD)


def recomputed(model, context, end_id=END):
    """Greedy decoding without a cache: the whole prefix anew for every token."""
    rows = np.full((len(context["token_ids"]), 1), START, "int32")
    for _ in range(MAX_LENGTH):
        logits = model(context | {"decoder_token_ids": rows})
        has_ended = (rows == end_id).any(1)
        rows = np.c_[rows, np.where(has_ended, PAD, np.argmax(logits[:, -1], -1))]
    return rows


@pytest.fixture(scope="module")
def end_id(model, context):
    """A token that ends some rows early, not all."""
    rows = recomputed(model, context, end_id=-1)[:, 1:]
    return next(t for t in range(3, 13) if 0 < (rows[:, : MAX_LENGTH - 2] == t).any(1).sum() < len(rows))


def test_cached_equals_recomputed(model, context, end_id):
    rows = greedy(model, context, end_id).numpy()
    np.testing.assert_array_equal(rows, recomputed(model, context, end_id))
    assert len(np.unique(rows)) > 5


def test_a_batch_equals_its_rows_one_by_one(model, context, end_id):
    together = greedy(model, context, end_id)
    for row in range(4):
        alone = greedy(model, {name: x[row : row + 1] for name, x in context.items()}, end_id)
        np.testing.assert_array_equal(alone[0], together[row])


def test_padding_of_the_source_changes_nothing(model, context, end_id):
    wider = {name: np.pad(x, ((0, 0), (0, 3))) for name, x in context.items()}
    wider["token_ids"][:, 6:] = 7
    np.testing.assert_array_equal(greedy(model, wider, end_id), greedy(model, context, end_id))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_traced_equals_eager(model, context, end_id, jit_compile):
    traced = tf.function(lambda x: greedy(model, x, end_id), autograph=False, jit_compile=jit_compile)
    tensors = {name: tf.constant(x) for name, x in context.items()}
    np.testing.assert_array_equal(traced(tensors), greedy(model, context, end_id))


def test_one_trace_serves_every_batch_size_and_length(model, context, end_id):
    signature = {name: tf.TensorSpec((None, None), x.dtype) for name, x in context.items()}

    @tf.function(autograph=False, input_signature=[signature, tf.TensorSpec((), tf.int32)])
    def decode(x, max_length):
        return greedy_decode(model, x, tf.shape(x["token_ids"])[0], max_length, START, end_id, PAD)

    for rows, source_length, max_length in ((4, 6, MAX_LENGTH), (1, 2, 4), (2, 6, 1)):
        some = {name: x[:rows, :source_length] for name, x in context.items()}
        expected = greedy(model, some, end_id)[:, : 1 + max_length]
        np.testing.assert_array_equal(decode(some, max_length), expected)


def test_a_memorised_translation_is_returned_and_ends():
    """ "The green witch arrived" -> "llego la bruja verde", among others, learnt by heart."""
    keras.utils.set_random_seed(1)
    pairs = [
        ("the green witch arrived", "llego la bruja verde"),
        ("the witch sang", "canto la bruja"),
        ("the red witch arrived", "llego la bruja roja"),
    ]
    words = ["<pad>", "<start>", "<end>", *sorted(set(" ".join(sum(pairs, ())).split()))]

    def rows(texts, length):
        ids = [[words.index(word) for word in text.split()] for text in texts]
        return np.array([row + [PAD] * (length - len(row)) for row in ids], "int32")

    source = rows([pair[0] for pair in pairs], 4)
    target = rows([f"<start> {pair[1]} <end>" for pair in pairs], 6)
    batch = {"token_ids": source, "padding_mask": source != PAD, "decoder_token_ids": target[:, :-1]}
    config = TransformerConfig(len(words), num_layers=1, dim=16, num_heads=2, hidden_dim=32, dropout=0.0)
    model = LanguageModel(Transformer(config))
    model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy())
    losses = [model.train_on_batch(batch, target[:, 1:], target[:, 1:] != PAD) for _ in range(60)]
    assert losses[-1] < 0.1 < losses[0]
    context = {name: batch[name] for name in ("token_ids", "padding_mask")}
    np.testing.assert_array_equal(greedy(model, context)[:, :6], target)
    np.testing.assert_array_equal(greedy(model, context)[:, 6:], np.full((3, MAX_LENGTH - 5), PAD))
