"""Live: BERT and its heads against transformers': states, logits, gradients, folders in both directions."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from keras_tfm import convert
from keras_tfm.convert import bert, keymap
from keras_tfm.heads import TokenCrossEntropy
from keras_tfm.models import BERT
from tests.parity.bert_reference import answer, draw_entries, draw_inputs, draw_model

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "3")))
OUTPUTS = {  # theirs, in the order of ours: sorted by our names
    "BertModel": ("pooler_output", "last_hidden_state"),
    "BertForPreTraining": ("prediction_logits", "seq_relationship_logits"),
    "BertForMaskedLM": ("logits",),
    "BertForNextSentencePrediction": ("logits",),
    "BertForSequenceClassification": ("logits",),
    "BertForTokenClassification": ("logits",),
    "BertForQuestionAnswering": ("end_logits", "start_logits"),
}


def assert_close(ours, theirs, mask):
    """Where the batch holds no padding, if it has that axis."""
    ours, theirs = np.asarray(ours), theirs.detach().numpy()
    if theirs.ndim == 3:
        ours, theirs = ours[mask], theirs[mask]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("architecture", OUTPUTS)
def test_heads_in_both_directions(architecture, seed, tmp_path):
    rng = np.random.default_rng(seed)
    entries = draw_entries(rng)
    num_labels = 2 if "QuestionAnswering" in architecture else int(rng.integers(1, 6))
    theirs = draw_model(rng, architecture, entries, num_labels)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size=["5GB", "2KB"][rng.integers(2)])
    ours = convert.from_huggingface(tmp_path / "theirs")
    inputs = draw_inputs(rng, entries)
    outputs, expected = keras.tree.flatten(ours(inputs)), answer(theirs, inputs)
    for y, name in zip(outputs, OUTPUTS[architecture], strict=True):
        assert_close(y, getattr(expected, name), inputs["padding_mask"])
    convert.save_huggingface(ours, tmp_path / "ours")
    kind = getattr(transformers, architecture)
    back, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    for (name, a), (_, b) in zip(theirs.named_parameters(), back.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    for name, value in entries.items():
        if name != "classifier_dropout":
            same = {value, "gelu_new"} if value == "gelu_pytorch_tanh" else {value}
            assert getattr(back.config, name) in same
    again = answer(back.eval(), inputs)
    for name in OUTPUTS[architecture]:
        torch.testing.assert_close(getattr(again, name), getattr(expected, name))


@pytest.mark.parametrize("seed", CONFIGS)
def test_hidden_states_of_every_layer(seed, tmp_path):
    rng = np.random.default_rng(seed)
    entries = draw_entries(rng)
    theirs = draw_model(rng, "BertModel", entries)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = BERT.from_huggingface(tmp_path / "theirs")
    inputs = draw_inputs(rng, entries)
    states = answer(theirs, inputs, output_hidden_states=True).hidden_states
    x = ours.get_layer("embedding_norm")(ours.embedding(inputs["token_ids"], inputs["segment_ids"]))
    assert_close(x, states[0], inputs["padding_mask"])
    for block, state in zip(ours.encoder.blocks, states[1:], strict=True):
        x = block(x, mask=inputs["padding_mask"])
        assert_close(x, state, inputs["padding_mask"])


@pytest.mark.parametrize("seed", CONFIGS)
def test_gradients_of_pre_training(seed, tmp_path):
    """Of both losses' sum, masked positions gathered here and ignored labels there."""
    rng = np.random.default_rng(seed)
    entries = draw_entries(rng)
    theirs = draw_model(rng, "BertForPreTraining", entries)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    inputs = draw_inputs(rng, entries)
    inputs["token_ids"] = np.maximum(inputs["token_ids"], 1)  # their padding id's look-up has no gradient
    batch, length = inputs["token_ids"].shape
    labels = rng.integers(0, entries["vocab_size"], (batch, length))
    follows = rng.integers(0, 2, batch)
    num_masked = int(rng.integers(1, length + 1))
    positions = np.stack([rng.permutation(length)[:num_masked] for _ in range(batch)])
    weights = np.take_along_axis(inputs["padding_mask"], positions, 1) & (positions % 3 != 1)
    weights[0, 0] = True
    chosen = np.full((batch, length), -100)
    for row in range(batch):
        chosen[row, positions[row, weights[row]]] = labels[row, positions[row, weights[row]]]
    loss = answer(
        theirs, inputs, labels=torch.from_numpy(chosen), next_sentence_label=torch.from_numpy(follows)
    ).loss
    loss.backward()

    with tf.GradientTape() as tape:
        outputs = ours({**inputs, "mask_positions": positions})
        mlm = TokenCrossEntropy()(
            np.take_along_axis(labels, positions, 1), outputs["mlm"], weights.astype("f4")
        )
        nsp = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(follows, outputs["nsp"])
        total = mlm + nsp
    np.testing.assert_allclose(total, loss.detach(), rtol=1e-5)
    gradients = tape.gradient(total, [weight.value for weight in ours.trainable_weights])
    for weight, gradient in zip(ours.trainable_weights, gradients, strict=True):
        weight.assign(tf.convert_to_tensor(gradient))  # so that the table names and turns them
    head = bert.FAMILY.heads["BertForPreTraining"]
    actual = keymap.save(ours, bert.FAMILY.rows_with(head, "bert."))
    expected = {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        error = np.abs(actual[name] - gradient).max()
        rounding = 1e-6  # all there is of key biases' gradients, which are zero by theory
        assert error <= 1e-4 * np.abs(gradient).max() + rounding, name
