"""The encoder-decoder Transformer: the contract, the paper's sizes, how its parts are connected."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm import layers
from keras_tfm.heads import LanguageModelHead
from keras_tfm.models import Transformer, TransformerConfig
from keras_tfm.models.base import Trace
from tests import contract
from tests.contract import Case, ids, mask
from tests.layers import reference

TINY = TransformerConfig(11, num_layers=1, dim=6, num_heads=2, intermediate_dim=9)
OTHER = dataclasses.replace(
    TINY, target_vocabulary_size=13, key_dim=4, activation="gelu", normalize_first=True
)


def inputs(target_size):
    """A batch's tensors, by name."""
    return {
        "token_ids": ids("S", 11),
        "padding_mask": mask("S"),
        "decoder_token_ids": ids("T", target_size),
        "decoder_padding_mask": mask("T"),
    }


def cache(model, batch, max_length):
    context = {name: batch[name] for name in ("token_ids", "padding_mask")}
    return model.start(len(batch["token_ids"]), max_length, context)


PROMISES = {"attends": True, "causal": "T", "cache": cache, "reference": reference.transformer}

test_contract = contract.check_family(
    Case("one_vocabulary", lambda: Transformer(TINY), inputs(11), **PROMISES,
         tied=lambda model: (model.embedding.token.embeddings, model.output_embedding.token.embeddings)),
    Case("two_vocabularies", lambda: Transformer(OTHER), inputs(13), **PROMISES),
)  # fmt: skip


def tiny():
    model = Transformer(dataclasses.replace(TINY, num_layers=2))
    contract.randomise(model, seed=3)
    return model


SOURCE, TARGET = np.array([[3, 1, 4, 1], [5, 9, 2, 0]]), np.array([[1, 7, 8], [1, 2, 0]])
BATCH = {"token_ids": SOURCE, "decoder_token_ids": TARGET}


# Sizes -----------------------------------------------------------------------------------------------


def test_base_has_the_papers_number_of_weights():
    """Table 3 says 65 million; with its vocabulary of 37,000, shared, they are 63,082,496."""
    model = Transformer.from_size("base")
    assert model.count_params() - dropout_states(model) == 63_082_496


def test_number_of_weights_of_a_composition():
    """Width 256, eight heads as wide, 2,048 hidden, 15,000 tokens, 20 positions, a layer each: 19,960,216."""

    def part(branch, **options):
        return layers.Residual(branch, layers.LayerNormalization(), **options)

    def block(is_decoder):
        parts = {
            "attention": part(layers.MultiHeadAttention(8, 256), causal=is_decoder),
            "context_attention": part(layers.MultiHeadAttention(8, 256)) if is_decoder else None,
            "feedforward": part(layers.FeedForward(2048)),
        }
        return layers.Block(parts)

    token_ids = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    x, y = (layers.TokenAndPositionEmbedding(15_000, 20, 256)(ids) for ids in token_ids)
    x = block(False)(x)
    y = block(True)(y, context_attention={"context": x})
    model = keras.Model(token_ids, LanguageModelHead(15_000, use_bias=True)(y))
    assert model.layers[-1].count_params() == 3_855_000
    assert model.count_params() - dropout_states(model) == 19_960_216


def dropout_states(model):
    return sum(weight.numpy().size for weight in model.non_trainable_weights)


def test_sizes_are_configurations_of_the_table():
    model = Transformer.from_size("tiny", vocabulary_size=7, num_layers=1)
    assert model.config == dataclasses.replace(Transformer.sizes["tiny"], vocabulary_size=7, num_layers=1)
    base, big = Transformer.sizes["base"], Transformer.sizes["big"]
    assert (base.num_layers, base.dim, base.intermediate_dim, base.num_heads, base.dropout) == (
        6,
        512,
        2048,
        8,
        0.1,
    )
    assert (big.num_layers, big.dim, big.intermediate_dim, big.num_heads, big.dropout) == (
        6,
        1024,
        4096,
        16,
        0.3,
    )
    with pytest.raises(ValueError, match="Transformer has no size 'huge'; it has tiny, small, base, big"):
        Transformer.from_size("huge")


# How the parts are connected -------------------------------------------------------------------------


def test_the_final_encoder_output_feeds_every_decoder_block(monkeypatch):
    model, contexts = tiny(), []
    call = layers.MultiHeadAttention.call

    def recording(self, query, value=None, *arguments, **options):
        if value is not None:
            contexts.append(ops.convert_to_numpy(value))
        return call(self, query, value, *arguments, **options)

    monkeypatch.setattr(layers.MultiHeadAttention, "call", recording)
    encoded = model(BATCH)["encoder_sequence_output"]
    assert len(contexts) == 2
    for context in contexts:
        np.testing.assert_array_equal(context, encoded)


def test_encode_is_the_encoders_half():
    model = tiny()
    expected = model(BATCH | {"padding_mask": SOURCE != 0})["encoder_sequence_output"]
    np.testing.assert_allclose(model.encode(SOURCE, SOURCE != 0), expected, atol=1e-6)
    halves = keras.Model(model.input, model.output["encoder_sequence_output"])
    np.testing.assert_array_equal(
        halves(model._complete(BATCH))[0], model(BATCH)["encoder_sequence_output"][0]
    )


def test_embeddings_are_scaled_and_sinusoids_added():
    model = tiny()
    table = reference.exact(model.embedding.token.embeddings)
    expected = table[SOURCE] * np.sqrt(6) + reference.sines(4, 6)
    np.testing.assert_allclose(model.embedding(SOURCE), expected, atol=1e-6)


def test_the_same_word_differs_by_its_context():
    """First the same vector but for its position, last another: "bank" here and there."""
    model = tiny()
    bank = 7
    one, two = np.array([[1, bank, 3, 4]]), np.array([[5, bank, 6, 2]])
    np.testing.assert_array_equal(model.embedding(one)[0, 1], model.embedding(two)[0, 1])
    first, second = model.encode(one)[0, 1].numpy(), model.encode(two)[0, 1].numpy()
    assert first @ second / np.linalg.norm(first) / np.linalg.norm(second) < 0.999


def test_one_masked_pass_equals_a_pass_for_each_prefix():
    model = tiny()
    whole = model(BATCH)["decoder_sequence_output"]
    for t in range(TARGET.shape[1]):
        prefix = model(BATCH | {"decoder_token_ids": TARGET[:, : t + 1]})["decoder_sequence_output"]
        np.testing.assert_allclose(prefix[:, t], whole[:, t], atol=1e-5)


def test_no_gradient_flows_from_a_prediction_to_a_later_token():
    model = tiny()
    x = tf.Variable(model.output_embedding(TARGET))
    encoded = model.encode(SOURCE)
    with tf.GradientTape() as tape:
        y = model.decoder.run(Trace(), "decoder", x, None, context_attention={"context": encoded})
        y = tf.reduce_sum(y[0, :, :3], -1)
    gradient = np.abs(tape.jacobian(y, x).numpy()[:, 0]).max(-1)  # (T, T)
    assert (np.triu(gradient, 1) == 0).all()
    assert (gradient[np.tril_indices(3)] > 0).all()


def test_missing_masks_are_all_ones():
    model = tiny()
    full = BATCH | {"padding_mask": np.ones_like(SOURCE), "decoder_padding_mask": np.ones_like(TARGET)}
    for some in (BATCH, {name: full[name] for name in full if name != "padding_mask"}):
        for actual, expected in zip(contract.run(model, some), contract.run(model, full), strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_missing_token_ids_are_named():
    with pytest.raises(ValueError, match="needs 'decoder_token_ids'; it was given token_ids"):
        tiny()({"token_ids": SOURCE})
