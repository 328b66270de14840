"""Defaults for decoding in folders of transformers: generation_config.json, or entries of config.json."""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

from keras_tfm.convert.folder import inside, read_config
from keras_tfm.tasks.decoding import DecodingDefaults
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
}
KINDS: dict[str, Callable] = {
    "count": lambda x: type(x) is int and 0 <= x < 2**31,
    "positive": lambda x: type(x) is int and 0 < x < 2**31,
    "number": lambda x: type(x) in (int, float) and abs(x) < 1e6,
    "stopping": lambda x: x in (True, False, "never") and type(x) is not int,
    "ids": lambda x: isinstance(x, list) and all(KINDS["count"](i) for i in x),
}
WORDS = {
    "count": "a whole number of at least 0",
    "positive": "a whole number of at least 1",
    "number": "a number",
    "stopping": 'true, false or "never"',
    "ids": "tokens' ids",
}


def read_decoding(folder: Path, is_encoder_decoder: bool) -> DecodingDefaults:
    """The `DecodingDefaults` of a folder, without the options for sampling.

    They are read from generation_config.json, or from config.json if that file is missing; ids of start, end
    and padding may come from either. Raises CheckpointError for a malformed value.

    >>> import pathlib
    >>> _ = pathlib.Path("config.json").write_text('{"eos_token_id": 2, "num_beams": 4}')
    >>> keras_tfm.convert.read_decoding(".", is_encoder_decoder=True)
    DecodingDefaults(start_id=None, end_ids=(2,), pad_id=None, options={'beam_size': 4})
    """
    folder = pathlib.Path(folder)
    entries, path = read_config(folder), folder / "config.json"
    own = entries
    if os.path.lexists(folder / FILE):
        own, path = read_json(inside(folder, FILE)), folder / FILE
    entries = {**_without_none(entries), **_without_none(own)}
    options = {ours: _value(own, theirs, kind, path) for theirs, (ours, kind) in OPTIONS.items()}
    if not is_encoder_decoder:
        options["forced_first_id"] = None  # in transformers it applies only to prompts of one token
    start = "decoder_start_token_id" if "decoder_start_token_id" in entries else "bos_token_id"
    return DecodingDefaults(
        _value(entries, start, "count", path) if is_encoder_decoder else None,
        _value(entries, "eos_token_id", "ids", path),
        _value(entries, "pad_token_id", "count", path),
        _without_none(options),
    )


def decoding_entries(defaults):
    """The entries of generation_config.json for `DecodingDefaults`."""
    entries = {theirs: defaults.options.get(ours) for theirs, (ours, _) in OPTIONS.items()}
    ids = {"decoder_start_token_id": defaults.start_id, "pad_token_id": defaults.pad_id}
    entries |= {**ids, "eos_token_id": defaults.end_ids}
    for name in ("eos_token_id", "forced_eos_token_id"):
        if entries[name] is not None and len(entries[name]) == 1:
            (entries[name],) = entries[name]
    return _without_none(entries)


def write_decoding(defaults: DecodingDefaults) -> Callable[[pathlib.Path], Any]:
    """A function that writes generation_config.json into a folder.

    >>> import pathlib
    >>> defaults = keras_tfm.tasks.decoding.DecodingDefaults(end_ids=(2,), options={"beam_size": 4})
    >>> _ = keras_tfm.convert.write_decoding(defaults)(pathlib.Path("."))
    >>> pathlib.Path("generation_config.json").read_text().split()
    ['{', '"num_beams":', '4,', '"eos_token_id":', '2', '}']
    """
    text = json.dumps(decoding_entries(defaults), indent=2) + "\n"
    return lambda folder: (folder / FILE).write_text(text, "utf-8")


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
