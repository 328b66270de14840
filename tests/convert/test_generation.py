"""generation_config.json: read, written, and refused where a value is of another kind."""

import json

import pytest

from keras_tfm.convert import CheckpointError, read_decoding, write_decoding
from keras_tfm.generation import DecodingDefaults

ENTRIES = {
    "decoder_start_token_id": 2,
    "eos_token_id": [2, 9],
    "pad_token_id": 1,
    "num_beams": 4,
    "length_penalty": 2.0,
    "early_stopping": True,
    "no_repeat_ngram_size": 3,
    "max_length": 142,
    "min_length": 56,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "suppress_tokens": [7],
    "begin_suppress_tokens": [4, 5],
    "sequence_bias": [[[3], 1.5], [[4, 5], -2.0]],
    "bad_words_ids": [[6], [6, 7]],
    "exponential_decay_length_penalty": [3, 1.2],
    "renormalize_logits": True,
}
OPTIONS = {
    "beam_size": 4,
    "length_penalty": 2.0,
    "early_stopping": True,
    "no_repeat_ngram_size": 3,
    "max_length": 142,
    "min_length": 56,
    "forced_first_id": 0,
    "forced_last_ids": (2,),
    "suppressed_ids": (7,),
    "first_suppressed_ids": (4, 5),
    "sequence_bias": (((3,), 1.5), ((4, 5), -2.0)),
    "forbidden_sequences": ((6,), (6, 7)),
    "length_decay": (3, 1.2),
    "renormalize": True,
}


def write(folder, name, entries):
    (folder / name).write_text(json.dumps(entries))


def test_both_files(tmp_path):
    """Options from generation_config.json where there is one, or else from config.json."""
    write(tmp_path, "config.json", ENTRIES | {"bos_token_id": 5, "do_sample": True, "top_k": 50})
    expected = DecodingDefaults(2, (2, 9), 1, OPTIONS)
    assert read_decoding(tmp_path, True) == expected
    alone = read_decoding(tmp_path, False)
    assert alone.start_id is None and "forced_first_id" not in alone.options
    write_decoding(expected)(tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text()) == ENTRIES
    assert read_decoding(tmp_path, True) == expected
    write(tmp_path, "generation_config.json", {"num_beams": 2, "pad_token_id": None, "max_length": None})
    assert read_decoding(tmp_path, True) == DecodingDefaults(2, (2, 9), 1, {"beam_size": 2})
    write(tmp_path, "config.json", {"bos_token_id": 5})
    assert read_decoding(tmp_path, True) == DecodingDefaults(5, None, None, {"beam_size": 2})


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            {"bos_token_id": 0, "force_bos_token_to_be_generated": True},
            DecodingDefaults(0, None, None, {"forced_first_id": 0}),
        ),
        (
            {"decoder": {"num_beams": 3, "max_length": 9, "eos_token_id": 4, "dim": 8}, "num_beams": None},
            DecodingDefaults(None, (4,), None, {"beam_size": 3, "max_length": 9}),
        ),
        (
            {"decoder": {"num_beams": 3, "pad_token_id": 1}, "num_beams": 2, "pad_token_id": 0},
            DecodingDefaults(None, None, 0, {"beam_size": 2}),
        ),
    ],
)
def test_config_json_alone_is_read_as_transformers_does(entries, expected, tmp_path):
    write(tmp_path, "config.json", entries)
    assert read_decoding(tmp_path, True) == expected
    write(tmp_path, "generation_config.json", {})
    assert not read_decoding(tmp_path, True).options  # that file stands alone


def test_the_folder_may_be_a_string(tmp_path):
    write(tmp_path, "config.json", {"eos_token_id": 2})
    write(tmp_path, "generation_config.json", {"num_beams": 4})
    assert read_decoding(str(tmp_path), True) == DecodingDefaults(None, (2,), None, {"beam_size": 4})


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("num_beams", 0),
        ("num_beams", True),
        ("length_penalty", "2"),
        ("length_penalty", float("inf")),
        ("early_stopping", 1),
        ("early_stopping", "always"),
        ("eos_token_id", -1),
        ("eos_token_id", "</s>"),
        ("eos_token_id", [2, None]),
        ("suppress_tokens", {"7": 7}),
        ("min_length", -3),
        ("max_length", 10**12),
        ("repetition_penalty", 0),
        ("begin_suppress_tokens", ["a"]),
        ("bad_words_ids", []),
        ("bad_words_ids", [[]]),
        ("bad_words_ids", [3]),
        ("sequence_bias", []),
        ("sequence_bias", [[[3], 1]]),  # transformers takes no whole number either
        ("sequence_bias", [[[], 1.0]]),
        ("sequence_bias", [[3, 1.0]]),
        ("sequence_bias", {"3": 1.0}),
        ("exponential_decay_length_penalty", [3]),
        ("exponential_decay_length_penalty", [3, -1.0]),
        ("exponential_decay_length_penalty", [1.5, 1.0]),
        ("renormalize_logits", 1),
        ("num_beam_groups", 2),
        ("penalty_alpha", 0.6),
        ("force_words_ids", [[3]]),
        ("constraints", ["x"]),
        ("dola_layers", "high"),
        ("guidance_scale", 1.5),
        ("watermarking_config", {"bias": 2.0}),
        ("num_return_sequences", 2),
        ("token_healing", True),
        ("max_time", 3.0),
        ("use_mtp", True),
        ("forced_decoder_ids", [[1, 5]]),
        ("encoder_repetition_penalty", "2"),
        ("encoder_no_repeat_ngram_size", -1),
        ("stop_strings", [""]),
        ("an_unknown_entry", 1),
    ],
)
def test_a_value_of_another_kind_is_refused(entry, value, tmp_path):
    write(tmp_path, "config.json", {})
    write(tmp_path, "generation_config.json", {entry: value})
    place = "" if entry == "repetition_penalty" else f"{entry}: "
    with pytest.raises(CheckpointError, match=f"generation_config.json: {place}expected"):
        read_decoding(tmp_path, True)


def test_entries_that_ask_for_nothing(tmp_path):
    """Older files hold every entry with its default; config.json holds the model's entries too."""
    nothing = {"num_beam_groups": 1, "penalty_alpha": 0.0, "guidance_scale": 1.0, "num_return_sequences": 1}
    nothing |= {"force_words_ids": None, "token_healing": False, "encoder_no_repeat_ngram_size": 0}
    nothing |= {"diversity_penalty": 0.0, "do_sample": True, "top_k": 50, "use_cache": True}
    nothing |= {"encoder_repetition_penalty": 1.0, "transformers_version": "4.20.0"}
    write(tmp_path, "config.json", nothing | {"vocab_size": 9})
    assert read_decoding(tmp_path, True) == DecodingDefaults()
    write(tmp_path, "generation_config.json", nothing)
    assert read_decoding(tmp_path, True) == DecodingDefaults()
    write(tmp_path, "generation_config.json", {"watermarking_config": None, "an_unknown_entry": None})
    assert read_decoding(tmp_path, True) == DecodingDefaults()
    (tmp_path / "generation_config.json").unlink()
    write(tmp_path, "config.json", {"num_beam_groups": 2})
    with pytest.raises(CheckpointError, match=r"config\.json: num_beam_groups: expected 1 or null"):
        read_decoding(tmp_path, True)


@pytest.mark.parametrize("is_encoder_decoder", [True, False])
def test_what_is_compared_with_a_source_or_prompt(is_encoder_decoder, tmp_path):
    write(tmp_path, "config.json", {})
    entries = {
        "encoder_repetition_penalty": 1.5,
        "encoder_no_repeat_ngram_size": 2,
        "stop_strings": [".", "!"],
    }
    write(tmp_path, "generation_config.json", entries)
    options = {"prompt_repetition_penalty": 1.5, "prompt_no_repeat_ngram_size": 2}
    expected = DecodingDefaults(options=options, stop=(".", "!"))
    assert read_decoding(tmp_path, is_encoder_decoder) == expected
    write_decoding(expected)(tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text()) == entries
    write(tmp_path, "generation_config.json", {"stop_strings": "."})
    assert read_decoding(tmp_path, is_encoder_decoder).stop == (".",)


@pytest.mark.parametrize(
    ("entry", "value"),
    [("encoder_repetition_penalty", 1.5), ("encoder_no_repeat_ngram_size", 2), ("stop_strings", ["."])],
)
def test_a_model_of_images_has_no_source_to_compare_with(entry, value, tmp_path):
    write(tmp_path, "config.json", {})
    write(tmp_path, "generation_config.json", {entry: value})
    with pytest.raises(CheckpointError, match=f"generation_config.json: {entry}: expected .* for a model of"):
        read_decoding(tmp_path, True, reads_text=False)


def test_what_is_said_comes_before_what_is_published():
    defaults = DecodingDefaults(options=OPTIONS)
    chosen = defaults.choose(1)
    assert chosen["max_new_tokens"] == 141 and chosen["min_new_tokens"] == 55 and chosen["beam_size"] == 4
    assert "max_length" not in chosen and "min_length" not in chosen
    assert defaults.choose(60).get("min_new_tokens") is None
    chosen = defaults.choose(1, max_new_tokens=5, beam_size=1, no_repeat_ngram_size=0)
    assert (chosen["max_new_tokens"], chosen["beam_size"], chosen["no_repeat_ngram_size"]) == (5, 1, 0)
    sampled = defaults.choose(1, temperature=0.7)
    assert not {"beam_size", "length_penalty", "early_stopping"} & sampled.keys()
    ids = [token_id for _, token_id in defaults.ids()]
    assert {6, 7, 3, 4, 5, 0, 2} == set(ids)  # the ids in sequences too
    with pytest.raises(ValueError, match="there is no temperature"):
        DecodingDefaults(options={"temperature": 1.0})
