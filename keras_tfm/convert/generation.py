"""Defaults for decoding in folders of transformers: generation_config.json, or entries of config.json."""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

from keras_tfm.convert.folder import inside, read_config
from keras_tfm.generation import DecodingDefaults
from keras_tfm.training.folder import Path
from keras_tfm.training.safetensors import CheckpointError, read_json

FILE = "generation_config.json"
# {their entry: (our option, the type of its value)}
OPTIONS = {
    "num_beams": ("beam_size", "positive"),
    "length_penalty": ("length_penalty", "number"),
    "early_stopping": ("early_stopping", "stopping"),
    "repetition_penalty": ("repetition_penalty", "number"),
    "no_repeat_ngram_size": ("no_repeat_ngram_size", "count"),
    "max_new_tokens": ("max_new_tokens", "positive"),
    "min_new_tokens": ("min_new_tokens", "count"),
    "max_length": ("max_length", "positive"),
    "min_length": ("min_length", "count"),
    "forced_bos_token_id": ("forced_first_id", "count"),
    "forced_eos_token_id": ("forced_last_ids", "ids"),
    "suppress_tokens": ("suppressed_ids", "ids"),
    "sequence_bias": ("sequence_bias", "biases"),
    "bad_words_ids": ("forbidden_sequences", "sequences"),
    "encoder_repetition_penalty": ("prompt_repetition_penalty", "number"),
    "encoder_no_repeat_ngram_size": ("prompt_no_repeat_ngram_size", "count"),
    "exponential_decay_length_penalty": ("length_decay", "decay"),
    "begin_suppress_tokens": ("first_suppressed_ids", "ids"),
    "renormalize_logits": ("renormalize", "flag"),
}
STOP = "stop_strings"
DECODERS = ("decoder", "generator", "text_config")  # entries of config.json that hold a decoder's entries
# Entries about a source of tokens, which of a decoder alone is the prompt, and what asks for nothing.
SOURCE = {"encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0}
# Entries that change the answer and are not computed, with the values that ask for nothing. transformers
# itself refuses groups of beams, contrastive search, constraints and DoLa: they are code from its hub.
REFUSED: dict[str, tuple] = {
    "num_beam_groups": (1,),
    "penalty_alpha": (0,),
    "force_words_ids": ([],),
    "constraints": ([],),
    "dola_layers": (),
    "guidance_scale": (1,),
    "watermarking_config": (),
    "num_return_sequences": (1,),
    "token_healing": (False,),
    "max_time": (),
    "use_mtp": (False,),
    "forced_decoder_ids": ([],),
}
# Entries that leave the likeliest text as it is: of sampling, which a call asks for, of guesses that are
# checked, of caches and compilers, of what else is returned.
NEUTRAL = {
    "do_sample", "temperature", "top_k", "top_p", "top_h", "min_p", "typical_p", "epsilon_cutoff",
    "eta_cutoff", "diversity_penalty", "is_assistant", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_early_exit",
    "assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight", "speculation_type",
    "prompt_lookup_num_tokens", "max_matching_ngram_size", "use_cache", "cache_implementation",
    "cache_config", "max_cache_len", "return_legacy_cache", "low_memory", "compile_config",
    "disable_compile", "continuous_batching_config", "prefill_chunk_size", "remove_invalid_values",
    "output_attentions", "output_hidden_states", "output_scores", "output_logits",
    "return_dict_in_generate", "generation_kwargs", "bos_token_id", "eos_token_id", "pad_token_id",
    "decoder_start_token_id", "transformers_version", "_from_model_config", "_commit_hash",
}  # fmt: skip
KINDS: dict[str, Callable] = {
    "count": lambda x: type(x) is int and 0 <= x < 2**31,
    "positive": lambda x: type(x) is int and 0 < x < 2**31,
    "number": lambda x: type(x) in (int, float) and abs(x) < 1e6,
    "stopping": lambda x: x in (True, False, "never") and type(x) is not int,
    "ids": lambda x: isinstance(x, list) and all(KINDS["count"](i) for i in x),
    "flag": lambda x: type(x) is bool,
    "sequences": lambda x: isinstance(x, list) and x and all(ids and KINDS["ids"](ids) for ids in x),
    "biases": lambda x: isinstance(x, list) and x and all(map(is_bias, x)),
    "decay": lambda x: (
        isinstance(x, list) and len(x) == 2 and KINDS["count"](x[0]) and KINDS["number"](x[1]) and x[1] > 0
    ),
    "strings": lambda x: isinstance(x, list) and all(isinstance(text, str) and text for text in x),
}
WORDS = {
    "count": "a whole number of at least 0",
    "positive": "a whole number of at least 1",
    "number": "a number",
    "stopping": 'true, false or "never"',
    "ids": "tokens' ids",
    "flag": "true or false",
    "sequences": "one or more lists of tokens' ids",
    "biases": "one or more pairs of a list of tokens' ids and a number with a point",
    "decay": "a whole number and a number above 0",
    "strings": "strings that end a text",
}


def is_bias(value):
    """Whether this is a sequence of ids and its bias, which transformers refuses as an integer."""
    is_pair = isinstance(value, list) and len(value) == 2 and type(value[1]) is float
    return is_pair and bool(value[0]) and KINDS["ids"](value[0]) and abs(value[1]) < 1e6


def read_decoding(folder: Path, is_encoder_decoder: bool, reads_text: bool = True) -> DecodingDefaults:
    """The `DecodingDefaults` of a folder, without the options for sampling. `reads_text` is False for a model
    of images, which has no tokens to compare with.

    They are read from generation_config.json, or from config.json if that file is missing, its decoder's
    entries included; ids of start, end and padding may come from either. Raises CheckpointError for a
    malformed value, for entries that change the answer and are not computed here and, in
    generation_config.json, for unknown ones.

    >>> import pathlib
    >>> _ = pathlib.Path("config.json").write_text('{"eos_token_id": 2, "num_beams": 4}')
    >>> keras_tfm.convert.read_decoding(".", is_encoder_decoder=True)
    DecodingDefaults(start_id=None, end_ids=(2,), pad_id=None, options={'beam_size': 4}, stop=())
    """
    folder = pathlib.Path(folder)
    entries, path = read_config(folder), folder / "config.json"
    if os.path.lexists(folder / FILE):
        own, path = read_json(inside(folder, FILE)), folder / FILE
    else:
        own = _of_model(entries)
    entries = {**_without_none(entries), **_without_none(own)}
    _refuse(own, path, reads_text)
    options = {ours: _value(own, theirs, kind, path) for theirs, (ours, kind) in OPTIONS.items()}
    stop = own.get(STOP)
    stop = _value({STOP: [stop] if isinstance(stop, str) else stop}, STOP, "strings", path)
    for name, nothing in SOURCE.items():
        if options[ours := OPTIONS[name][0]] == nothing:
            options[ours] = None
    if not is_encoder_decoder:
        options["forced_first_id"] = None  # in transformers it applies only to prompts of one token
    start = "decoder_start_token_id" if "decoder_start_token_id" in entries else "bos_token_id"
    ids = (
        _value(entries, start, "count", path) if is_encoder_decoder else None,
        _value(entries, "eos_token_id", "ids", path),
        _value(entries, "pad_token_id", "count", path),
    )
    try:
        return DecodingDefaults(*ids, _without_none(options), tuple(stop or ()))
    except ValueError as error:
        raise CheckpointError(path, None, "options of decoding", str(error).rstrip(".")) from None


def decoding_entries(defaults):
    """The entries of generation_config.json for `DecodingDefaults`."""
    entries = {theirs: defaults.options.get(ours) for theirs, (ours, _) in OPTIONS.items()}
    ids = {"decoder_start_token_id": defaults.start_id, "pad_token_id": defaults.pad_id}
    entries |= {**ids, "eos_token_id": defaults.end_ids, STOP: defaults.stop or None}
    for name in ("eos_token_id", "forced_eos_token_id"):
        if entries[name] is not None and len(entries[name]) == 1:
            (entries[name],) = entries[name]
    return _without_none(entries)


def write_decoding(defaults: DecodingDefaults) -> Callable[[pathlib.Path], Any]:
    """A function that writes generation_config.json into a folder.

    >>> import pathlib
    >>> defaults = keras_tfm.generation.DecodingDefaults(end_ids=(2,), options={"beam_size": 4})
    >>> _ = keras_tfm.convert.write_decoding(defaults)(pathlib.Path("."))
    >>> pathlib.Path("generation_config.json").read_text().split()
    ['{', '"num_beams":', '4,', '"eos_token_id":', '2', '}']
    """
    text = json.dumps(decoding_entries(defaults), indent=2) + "\n"
    return lambda folder: (folder / FILE).write_text(text, "utf-8")


def _of_model(entries):
    """The entries of config.json with what `transformers` adds where there is no other file: what the decoder
    of a composed model says and the model does not, and the first token that BARTs of 2020 force by a flag.
    """
    inner = next((entries[name] for name in DECODERS if entries.get(name)), None)
    known = {STOP, *NEUTRAL, *OPTIONS, *REFUSED}
    of_decoder = {name: x for name, x in inner.items() if name in known} if isinstance(inner, dict) else {}
    is_forced = entries.get("force_bos_token_to_be_generated")
    forced = {"forced_bos_token_id": entries.get("bos_token_id")} if is_forced else {}
    return {**of_decoder, **_without_none({**entries, **forced})}


def _refuse(entries, path, reads_text):
    """Raise CheckpointError for entries that are not obeyed."""
    for name, value in entries.items():
        if value is None:
            continue
        if name in REFUSED and value not in REFUSED[name]:
            expected = f"{json.dumps(REFUSED[name][0])} or null" if REFUSED[name] else "null"
            raise CheckpointError(path, name, f"{expected}, as it is not computed here", repr(value)[:80])
        if not reads_text and name in SOURCE and value != SOURCE[name]:
            expected = f"{SOURCE[name]} for a model of images"
            raise CheckpointError(path, name, expected, repr(value)[:80])
        if not reads_text and name == STOP and value:
            raise CheckpointError(path, name, "null for a model of images", repr(value)[:80])
        if path.name == FILE and not (name in OPTIONS or name in REFUSED or name in NEUTRAL or name == STOP):
            expected = "an entry that is known here, or null"
            raise CheckpointError(path, name, expected, repr(value)[:80])


def _without_none(entries):
    return {name: value for name, value in entries.items() if value is not None}


def _value(entries, name, kind, path):
    """The entry `name`, or None; an entry that may have several ids is always a list."""
    value = entries.get(name)
    if value is None:
        return None
    if kind == "ids" and type(value) is int:
        value = [value]
    if not KINDS[kind](value):
        raise CheckpointError(path, name, WORDS[kind], repr(value)[:80])
    return tuple(value) if kind == "ids" else value
