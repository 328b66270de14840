"""Llama, Mistral, Qwen2 and Gemma 2: the contract, sizes, windows, decoding, folders that are refused."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import convert
from keras_tfm.convert import CheckpointError
from keras_tfm.generation import Decoder
from keras_tfm.heads import LanguageModel
from keras_tfm.models import (
    Gemma2,
    Gemma2Config,
    Llama,
    LlamaConfig,
    Mistral,
    MistralConfig,
    Qwen2,
    Qwen2Config,
)
from tests import contract
from tests.contract import Case, ids, mask
from tests.models.test_gpt2 import MASK, PROMPTS, Documents, recomputed

SIZES = {"vocabulary_size": 11, "max_length": 12, "num_layers": 1, "dim": 8, "num_heads": 4,
         "num_key_value_heads": 2, "intermediate_dim": 6}  # fmt: skip
SCALING = {"rope_type": "linear", "factor": 2.0}
INPUTS = {"token_ids": ids("T", 11), "padding_mask": mask("T"), "segment_ids": ids("T", 1)}
PROMISES = {"attends": True, "causal": "T", "cache": lambda model, batch, length: model.start(3, length)}


def windowed():
    return Mistral(MistralConfig(**SIZES, window=3))


test_contract = contract.check_family(
    Case("grouped", lambda: Llama(LlamaConfig(**SIZES, rotary_scaling=SCALING)), INPUTS, **PROMISES,
         left_padding="T"),
    Case("packed", lambda: Qwen2(Qwen2Config(**SIZES)),
         {**INPUTS, "segment_ids": Documents(("T",), "int32", 2)}, attends=True, causal="T"),
    Case("windowed", windowed, INPUTS, **PROMISES, left_padding="T"),
    Case("bounded", lambda: Gemma2(Gemma2Config(**SIZES, key_dim=4, window=2, score_cap=2.0)), INPUTS,
         **PROMISES, left_padding="T"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("family", "size", "number"),
    [
        (Llama, "7b", 6_738_415_616),
        (Llama, "13b", 13_015_864_320),
        (Llama, "33b", 32_528_943_616),
        (Llama, "65b", 65_285_660_672),
        (Llama, "2-7b", 6_738_415_616),
        (Llama, "2-70b", 68_976_648_192),
        (Llama, "3-8b", 8_030_261_248),
        (Llama, "3-70b", 70_553_706_496),
        (Llama, "3.2-1b", 1_235_814_400),
        (Llama, "3.2-3b", 3_212_749_824),
        (Mistral, "7b", 7_241_732_096),
        (Qwen2, "0.5b", 494_032_768),
        (Qwen2, "1.5b", 1_543_714_304),
        (Qwen2, "7b", 7_615_616_512),
        (Qwen2, "72b", 72_706_203_648),
        # Gemma Team 2024, table 2: the numbers without the embedding. Its table has 256,128 rows, the
        # released folders' has 256,000.
        (Gemma2, "2b", 2_024_517_888 + 256_000 * 2_304),
        (Gemma2, "9b", 8_324_201_984 + 256_000 * 3_584),
        (Gemma2, "27b", 26_047_480_320 + 256_000 * 4_608),
    ],
)
def test_sizes_are_the_published(family, size, number):
    """The number of weights with the output's table, counted by hand."""
    config = family.sizes[size]
    queries, keys, values = config.widths
    attention = config.dim * (2 * queries + keys + values) + family.has_biases * sum(config.widths)
    norms = 4 if family is Gemma2 else 2
    block = attention + 3 * config.dim * config.intermediate_dim + norms * config.dim
    tables = (1 if config.tied else 2) * config.vocabulary_size * config.dim
    assert config.num_layers * block + tables + config.dim == number


@pytest.mark.parametrize("family", [Llama, Mistral, Qwen2, Gemma2])
def test_a_model_has_the_weights_that_are_counted(family, no_allocation):
    changes = {"key_dim": 24, "num_layers": 2, "intermediate_dim": 344}
    config = dataclasses.replace(family.sizes["tiny"], **changes)
    queries, keys, values = config.widths
    assert (queries, keys, values) == (96, 48, 48)
    attention = 128 * (2 * queries + keys + values) + family.has_biases * sum(config.widths)
    norms = 4 if family is Gemma2 else 2
    expected = 2 * (attention + 3 * 128 * 344 + norms * 128) + 8_000 * 128 + 128
    assert contract.num_parameters(family(config).weights) == expected


def randomised(family=Llama, config_class=LlamaConfig, **changes):
    model = LanguageModel(family(config_class(**SIZES | {"num_layers": 2, "max_length": 40} | changes)))
    contract.randomise(model, 3)
    return model


@pytest.mark.parametrize("window", [1, 2, 4])
def test_a_window_is_what_reaches_a_position(window):
    """In one layer a position sees `window` tokens; in two, their windows too."""
    token_ids = np.arange(1, 10)[None]
    for num_layers in (1, 2):
        model = randomised(Mistral, MistralConfig, window=window, num_layers=num_layers)
        logits = model({"token_ids": token_ids})[0]
        for position in range(9):
            changed = token_ids.copy()
            changed[0, position] = 10
            moved = np.abs(model({"token_ids": changed})[0] - logits).max(-1) > 1e-6
            last = min(9, position + num_layers * (window - 1) + 1)
            assert moved[position:last].all() and not moved[last:].any() and not moved[:position].any()


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("family", "config_class", "changes"),
    [
        (Llama, LlamaConfig, {}),
        (Mistral, MistralConfig, {"window": 3}),
        (Gemma2, Gemma2Config, {"window": 2}),
    ],
)
def test_cached_left_padded_batch_equals_recomputed_prompts_alone(family, config_class, changes, jit_compile):
    model = randomised(family, config_class, **changes)
    decode = tf.function(Decoder(model, 8), autograph=False, jit_compile=jit_compile)
    rows = decode(PROMPTS, MASK).numpy()
    for row, prompt, real in zip(rows, PROMPTS, MASK, strict=True):
        np.testing.assert_array_equal(row[4 - real.sum() :], recomputed(model, prompt[real], 8))
    assert len(np.unique(rows)) > 5


def test_a_graph_of_unknown_lengths_takes_a_prompt_of_one_token():
    """The step that reads all but the last token then has no token, for heads that share their keys."""
    model = randomised()
    specs = [tf.TensorSpec((None, None), "int32")]
    decode = tf.function(Decoder(model, 4), input_signature=specs, autograph=False)
    for prompts in ([[5]], [[5], [6]], [[5, 6, 7]]):
        rows = decode(tf.constant(prompts)).numpy()
        for row, prompt in zip(rows, prompts, strict=True):
            np.testing.assert_array_equal(row, recomputed(model, np.array(prompt), 4))


def test_too_long_is_refused():
    with pytest.raises(ValueError, match="has positions for 40 tokens; 44 are asked for"):
        Decoder(randomised(), 40)(PROMPTS)


def test_impossible_configurations_are_refused():
    with pytest.raises(ValueError, match="`num_key_value_heads` must divide `num_heads`, 4; it is 3"):
        Llama(LlamaConfig(**SIZES | {"num_key_value_heads": 3}))
    with pytest.raises(
        ValueError, match="`rotary_scaling` must have the rope_type linear or llama3; it is 'yarn'"
    ):
        LlamaConfig(rotary_scaling={"rope_type": "yarn", "factor": 2.0})
    with pytest.raises(ValueError, match="must have positive factor"):
        LlamaConfig(rotary_scaling={"rope_type": "linear", "factor": 0})


# Folders ---------------------------------------------------------------------------------------------


def folder_with(tmp_path, model, **entries):
    convert.save_huggingface(model, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    return path.parent


@pytest.mark.parametrize(
    ("family", "config_class", "entry", "value"),
    [
        (Llama, LlamaConfig, "attention_bias", True),
        (Llama, LlamaConfig, "mlp_bias", True),
        (Llama, LlamaConfig, "rope_parameters", {"rope_type": "yarn", "factor": 4.0}),
        (Llama, LlamaConfig, "rope_parameters", {"rope_type": "dynamic", "type": "linear", "factor": 4.0}),
        (Llama, LlamaConfig, "rope_scaling", {"type": "dynamic", "factor": 4.0}),
        (Llama, LlamaConfig, "num_key_value_heads", 4),
        (Qwen2, Qwen2Config, "use_sliding_window", True),
        (Gemma2, Gemma2Config, "layer_types", ["full_attention", "sliding_attention"]),
    ],
)
def test_what_we_do_not_compute_is_refused(tmp_path, family, config_class, entry, value):
    folder = folder_with(tmp_path, randomised(family, config_class), **{entry: value})
    with pytest.raises(CheckpointError):
        convert.from_huggingface(folder)


def test_what_gemmas_decoder_bounds():
    """Logits stay within the cap, and a norm's factors are 1 + gamma."""
    model = randomised(Gemma2, Gemma2Config, key_dim=4, logit_cap=0.5)
    logits = model({"token_ids": np.arange(1, 9)[None]}).numpy()
    assert 0.3 < np.abs(logits).max() <= 0.5
    fresh = Gemma2(Gemma2Config(**SIZES, key_dim=4))
    assert not np.any([weight for weight in fresh.trainable_weights if weight.name == "gamma"])


def test_folders_of_older_versions(tmp_path):
    """They say the base and the scaling in two entries, and call the kind `type`."""
    model = randomised(rotary_base=50.0, rotary_scaling=SCALING)
    older = {"rope_theta": 50.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    folder = folder_with(tmp_path, model, rope_parameters=None, **older)
    assert convert.from_huggingface(folder).get_config() == model.get_config()


def test_a_scaling_that_is_added_replaces_all_parameters(tmp_path):
    """As transformers reads it: the base too, which is the default unless `rope_theta` says it."""
    model = randomised(rotary_base=50.0, rotary_scaling={"rope_type": "linear", "factor": 2.0})
    folder = folder_with(tmp_path, model, rope_scaling={"rope_type": "linear", "factor": 4.0})
    config = convert.from_huggingface(folder).backbone.config
    assert config.rotary_scaling == {"rope_type": "linear", "factor": 4.0}
    assert config.rotary_base == 10_000.0


def test_a_window_that_is_not_named_is_the_first_models(tmp_path):
    folder = folder_with(tmp_path, randomised(Mistral, MistralConfig, window=3))
    entries = json.loads((folder / "config.json").read_text())
    assert entries.pop("sliding_window") == 3
    (folder / "config.json").write_text(json.dumps(entries))
    assert convert.from_huggingface(folder).backbone.config.window == 4_096
