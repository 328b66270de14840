"""Folders of sentence-transformers: modules.json names the steps from a text to its vector.

A folder holds a model of transformers, whose file sentence_bert_config.json limits the length of texts, then
1_Pooling/config.json, and possibly a normalisation. Modules with weights of their own, prompts and other
options are refused by name.
"""

import json
import pathlib
from typing import Any

from keras_tfm.configs import brief
from keras_tfm.convert.folder import MOST_TOKENS, inside, number_of_tokens, read_max_length
from keras_tfm.heads.pooling import TOKEN_POOLINGS
from keras_tfm.training.safetensors import CheckpointError, read_json

MODULES = "modules.json"
PACKAGE = "sentence_transformers."
# The older the version, the more names the file of the first module has.
LENGTHS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
AFTER_POOLING = {"Normalize", "Dropout"}  # dropout does nothing to a learnt model
OPTIONS = "config_sentence_transformers.json"
# {pooling: its entry in the file of the module}
ENTRIES = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
# Entries of sentence_bert_config.json that leave the vectors as they are, and their values.
NEUTRAL: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
}


def read_sentence_folder(folder: pathlib.Path) -> tuple[pathlib.Path, dict[str, Any]]:
    """(The folder of the encoder in `folder`, the vectors' `pooling`, `normalize`, `max_length` and
    `lowercase`), without what the files leave open; a folder of transformers alone says nothing.

    Raises CheckpointError for whatever would change the vectors and is not computed here.
    """
    if not (folder / MODULES).exists():
        return folder, {}
    kinds, places = _modules(folder)
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - AFTER_POOLING:
        expected = f"Transformer, Pooling, then none or some of {', '.join(sorted(AFTER_POOLING))}"
        raise CheckpointError(folder / MODULES, None, f"the modules {expected}", ", ".join(kinds) or "none")
    _refuse_options(folder)
    fields = {"pooling": _pooling(places[1]), "normalize": "Normalize" in kinds, **_length(places[0])}
    return places[0], fields


def makes_vectors(folder: pathlib.Path) -> bool:
    """Whether `folder` is of sentence-transformers, for vectors of texts: its modules pool."""
    return (folder / MODULES).exists() and "Pooling" in _modules(folder)[0]


def _modules(folder):
    """The kinds of the modules in modules.json, and their folders."""
    path, kinds, places = inside(folder, MODULES), [], []
    for module in read_json(path, list):
        name, place = (module.get(key) for key in ("type", "path")) if isinstance(module, dict) else (0, 0)
        if not isinstance(name, str) or not isinstance(place, str):
            raise CheckpointError(path, None, "modules with a type and a path", brief(module))
        kinds.append(name.rpartition(".")[2] if name.startswith(PACKAGE) else name)
        places.append(inside(folder, place) if place else folder)
    return kinds, places


def _pooling(folder):
    """The poolings that the module in `folder` computes."""
    path = inside(folder, "config.json")
    entries = read_json(path)
    for name in ("word_embedding_dimension", "embedding_dimension", "include_prompt"):
        entries.pop(name, None)  # prompts are refused, and the width is the encoder's
    mode = entries.pop("pooling_mode", None)
    if unknown := sorted(entries.keys() - ENTRIES.values()):
        raise CheckpointError(path, unknown[0], f"only {', '.join(ENTRIES.values())}", "an unknown entry")
    if mode is not None:
        names = [mode] if isinstance(mode, str) else mode
        if not isinstance(names, list) or not names or not all(name in ENTRIES for name in names):
            raise CheckpointError(path, "pooling_mode", f"one of {', '.join(ENTRIES)}", brief(mode))
        return tuple(name for name in ENTRIES if name in names)
    for name, value in entries.items():
        if not isinstance(value, bool):
            raise CheckpointError(path, name, "true or false", brief(value))
    names = [name for name, entry in ENTRIES.items() if entries.get(entry, name == "mean")]
    if not names:
        raise CheckpointError(path, None, "at least one pooling mode that is true", "none")
    return tuple(names)


def _length(folder):
    """`max_length` and `lowercase`, as far as the encoder's `folder` gives them."""
    fields: dict[str, Any] = {}
    name = next((name for name in LENGTHS if (folder / name).exists()), None)
    if name is not None:
        path = inside(folder, name)
        entries = {name: value for name, value in read_json(path).items() if value not in (None, {})}
        fields["max_length"] = entries.pop("max_seq_length", None)
        fields["lowercase"] = entries.pop("do_lower_case", False)
        if type(fields["lowercase"]) is not bool:
            raise CheckpointError(path, "do_lower_case", "true or false", brief(fields["lowercase"]))
        for entry, value in entries.items():
            if value != NEUTRAL.get(entry):
                raise CheckpointError(path, entry, brief(NEUTRAL.get(entry)), brief(value))
        if fields["max_length"] is not None:
            length = number_of_tokens(fields["max_length"], "max_seq_length", path)
            return fields | {"max_length": int(min(length, MOST_TOKENS))}
    return fields | {"max_length": read_max_length(folder)}


def _refuse_options(folder):
    """Raise CheckpointError for options of all modules that change the vectors."""
    if not (folder / OPTIONS).exists():
        return
    path = inside(folder, OPTIONS)
    entries = read_json(path)
    prompts, name = entries.get("prompts") or {}, entries.get("default_prompt_name")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else name
    if prompt:
        expected = "null, as prompts are not added here (set it, and write the prompt before each text)"
        raise CheckpointError(path, "default_prompt_name", expected, f"{name!r} ({brief(prompt)})")
    if entries.get("truncate_dim") is not None:
        raise CheckpointError(path, "truncate_dim", "null", brief(entries["truncate_dim"]))


def sentence_writer(pooling, normalize, max_length, dim):
    """A function that writes a sentence-transformers' files into the folder of its encoder."""
    names = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    places = ["", *(f"{number}_{name}" for number, name in enumerate(names[1:], 1))]
    modules = [
        {"idx": number, "name": str(number), "path": place, "type": f"{PACKAGE}models.{name}"}
        for number, (name, place) in enumerate(zip(names, places, strict=True))
    ]
    modes = {ENTRIES[name]: name in pooling for name in TOKEN_POOLINGS}

    def write(folder):
        for place in places[1:]:
            (folder / place).mkdir()
        _write(folder / MODULES, modules)
        _write(folder / places[1] / "config.json", {"word_embedding_dimension": dim, **modes})
        _write(folder / LENGTHS[0], {"max_seq_length": max_length, "do_lower_case": False})

    return write


def _write(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
