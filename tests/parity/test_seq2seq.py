"""Live: T5, BART and mBART against transformers's: states, logits, gradients, folders, what they generate."""

import os

import numpy as np
import pytest
import torch

import keras_tfm
from keras_tfm import convert
from keras_tfm.convert.huggingface import family_of_type
from keras_tfm.generation import Decoder, EndTokens, NoRepeatNGram
from tests.parity.gradients import assert_gradients_agree
from tests.parity.searches import NEW, assert_greedy_agrees, check_beams, generate, pad_id_of, searches
from tests.parity.seq2seq import REFERENCES, answer, draw_inputs

pytestmark = [
    pytest.mark.parity,
    pytest.mark.parametrize("seed", range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))),
    pytest.mark.parametrize("name", REFERENCES),
]


def draw(name, seed, folder):
    """A model of theirs, ours from its folder, a batch, and what is left of the randomness."""
    rng = np.random.default_rng(seed)
    theirs = REFERENCES[name].draw_model(rng)
    theirs.save_pretrained(folder / "theirs", max_shard_size=["5GB", "2KB"][rng.integers(2)])
    ours = convert.from_huggingface(folder / "theirs")
    return theirs, ours, draw_inputs(rng, theirs.config.vocab_size), rng


def assert_close(ours, theirs, mask):
    """Where the batch holds no padding."""
    theirs = theirs.detach().numpy()[mask]
    np.testing.assert_allclose(
        ours.numpy()[mask], theirs, rtol=1e-5, atol=1e-5 * max(1, np.abs(theirs).max())
    )


def test_states_and_logits(name, seed, tmp_path):
    theirs, ours, inputs, _ = draw(name, seed, tmp_path)
    expected = answer(theirs, inputs, output_hidden_states=True)
    mask, decoder_mask = inputs["padding_mask"], inputs["decoder_padding_mask"]
    assert_close(ours(inputs), expected.logits, decoder_mask)
    backbone = ours.backbone
    outputs = backbone(inputs)
    assert_close(outputs["encoder_sequence_output"], expected.encoder_last_hidden_state, mask)
    assert_close(outputs["decoder_sequence_output"], expected.decoder_hidden_states[-1], decoder_mask)
    states = keras_tfm.Model(backbone.input, backbone.hidden_states)(inputs)
    for name, shown, their_states in (
        ("encoder", mask, expected.encoder_hidden_states),
        ("decoder", decoder_mask, expected.decoder_hidden_states),
    ):
        states[name][-1] = outputs[f"{name}_sequence_output"]  # theirs collects the last one normalised
        for y, state in zip(states[name], their_states, strict=True):
            assert_close(y, state, shown)


def test_gradients(name, seed, tmp_path):
    theirs, ours, inputs, rng = draw(name, seed, tmp_path)
    logits, mask = answer(theirs, inputs).logits, inputs["decoder_padding_mask"]
    assert_gradients_agree(ours, theirs, inputs, logits, mask, family_of_type(name), rng)


def test_folders_in_both_directions(name, seed, tmp_path):
    theirs, ours, inputs, _ = draw(name, seed, tmp_path)
    state = theirs.state_dict()
    for model, with_head in ((ours, True), (ours.backbone, False)):
        folder = tmp_path / f"ours-{with_head}"
        convert.save_huggingface(model, folder)
        back, report = REFERENCES[name].kind(with_head).from_pretrained(folder, output_loading_info=True)
        assert not any(report.values()), report
        for key, tensor in back.state_dict().items():
            assert torch.equal(tensor, state[key if key in state else f"model.{key}"]), key
        for key, value in REFERENCES[name].draw(np.random.default_rng(seed)).items():
            if key not in ("tie_word_embeddings", "forced_eos_token_id"):
                assert getattr(back.config, key) == value, key
        if with_head:
            # Weights are equal bit for bit; torch rounds by how a file's memory is aligned.
            expected = answer(theirs, inputs).logits
            torch.testing.assert_close(answer(back.eval(), inputs).logits, expected, rtol=1e-5, atol=1e-5)
    again = type(ours.backbone).from_huggingface(tmp_path / "ours-True")
    assert again.config == ours.backbone.config
    for a, b in zip(again.weights, ours.backbone.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def prompts_of(ours, inputs):
    """What ours begins with, and what it reads."""
    starts = np.full((len(inputs["token_ids"]), 1), ours.backbone.config.start_id)
    return {"token_ids": starts, "context": {key: inputs[key] for key in ("token_ids", "padding_mask")}}


def test_greedy_token_for_token(name, seed, tmp_path):
    theirs, ours, inputs, _ = draw(name, seed, tmp_path)
    plain, _ = generate(theirs, inputs, None)
    end_id = int(plain[0, -NEW // 2])
    stopped = {"stop": EndTokens(end_id), "pad_id": pad_id_of(theirs)}
    for size in (0, 2):
        decoder = Decoder(ours, NEW, processors=(NoRepeatNGram(size),) if size else (), **stopped)
        rows = decoder(**prompts_of(ours, inputs)).numpy()
        assert_greedy_agrees(rows, *generate(theirs, inputs, end_id, no_repeat_ngram_size=size))


@pytest.mark.alike("name")
def test_beams_token_for_token(name, seed, tmp_path):
    theirs, ours, inputs, rng = draw(name, seed, tmp_path)
    prompts = prompts_of(ours, inputs)
    end_id = int(rng.integers(3, pad_id_of(theirs)))
    for setting in searches(seed):
        early_stopping = [True, False, "never"][int(rng.integers(3))]
        check_beams(theirs, ours, inputs, setting, early_stopping, end_id, prompts)


@pytest.mark.parametrize("head", ["SequenceClassification", "QuestionAnswering"])
def test_heads_that_read(name, seed, head, tmp_path):
    """BART's, whose decoder reads the text once more: logits and folders in both directions."""
    reference, rng = REFERENCES[name], np.random.default_rng(seed)
    if name == "t5":
        return  # its heads of these kinds are none of the paper's
    entries = reference.draw(rng) | {"num_labels": int(rng.integers(1, 5)), "classifier_dropout": 0.1}
    theirs = reference.make(entries, rng, f"For{head}")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    convert.save_huggingface(ours, tmp_path / "ours")
    back, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    lengths = rng.integers(2, 12, 3)
    token_ids = np.where(
        np.arange(12) < lengths[:, None] - 1, rng.integers(4, entries["vocab_size"], (3, 12)), 1
    )
    token_ids[np.arange(3), lengths - 1] = 2
    mask = np.arange(12) < lengths[:, None]
    batch = {"input_ids": torch.from_numpy(token_ids), "attention_mask": torch.from_numpy(mask).long()}
    answers = ours({"token_ids": token_ids.astype("int32"), "padding_mask": mask})
    for model in (theirs, back.eval()):
        with torch.no_grad():
            expected = model(**batch)
        if head == "QuestionAnswering":
            assert_close(answers["start"], expected.start_logits, mask)
            assert_close(answers["end"], expected.end_logits, mask)
        else:
            assert_close(answers, expected.logits, slice(None))
