"""Models from and to the folders of `transformers`: config.json and safetensors, by one table per family."""

import importlib
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from keras_tfm.convert import keymap, timm
from keras_tfm.convert.family import files_of
from keras_tfm.convert.folder import find_folder, read_config, read_weights, write_folder
from keras_tfm.heads import Classifier
from keras_tfm.training.folder import Path
from keras_tfm.training.quantization import quantization_of
from keras_tfm.training.safetensors import CheckpointError

# The file of each `model_type` in config.json, or of one "model_type/architecture"; a file is named like the
# file of our model.
TABLES = {
    "bert": "bert.FAMILY",
    "roberta": "roberta.FAMILY",
    "xlm-roberta": "roberta.XLM_ROBERTA",
    "distilbert": "distilbert.FAMILY",
    "albert": "albert.FAMILY",
    "deberta": "deberta.V1",
    "deberta-v2": "deberta.V2",
    "esm": "esm2.FAMILY",
    "esm/EsmForProteinFolding": "esmfold.FAMILY",
    "fnet": "fnet.FAMILY",
    "gpt2": "gpt2.FAMILY",
    "imagegpt": "imagegpt.FAMILY",
    "llama": "llama.FAMILY",
    "mistral": "mistral.FAMILY",
    "qwen2": "qwen2.FAMILY",
    "gemma2": "gemma2.FAMILY",
    "t5": "t5.FAMILY",
    "bart": "bart.FAMILY",
    "mbart": "bart.MBART",
    "cvt": "cvt.FAMILY",
    "resnet": "resnet.FAMILY",
    "bit": "bit.FAMILY",
    "swin": "swin.FAMILY",
    "swinv2": "swin_v2.FAMILY",
    "segformer": "mit.FAMILY",
    "levit": "levit.FAMILY",
    "deit": "deit.FAMILY",
    "vit": "vit.FAMILY",
    "vit_mae": "vit_mae.FAMILY",
    "timesformer": "timesformer.FAMILY",
    "videomae": "videomae.FAMILY",
    "vivit": "vivit.FAMILY",
    "clip": "clip.FAMILY",
    "siglip": "siglip.FAMILY",
    "detr": "detr.FAMILY",
    "conditional_detr": "conditional_detr.FAMILY",
    "deformable_detr": "deformable_detr.FAMILY",
    "rt_detr": "rt_detr.FAMILY",
    "maskformer": "mask_former.FAMILY",
    "mask2former": "mask2former.FAMILY",
    "vision-encoder-decoder": "vision_encoder_decoder.FAMILY",
    "dinov2": "dinov2.FAMILY",
    "dinov2_with_registers": "dinov2.WITH_REGISTERS",
    "dinov3_vit": "dinov3.FAMILY",
}


def family_of_type(model_type):
    """The `Family` of a `model_type`, or None; no other family's file is imported."""
    if model_type not in TABLES:
        return None
    file, _, name = TABLES[model_type].partition(".")
    return getattr(importlib.import_module(f"keras_tfm.convert.{file}"), name)


def family_of_entries(entries):
    """The `Family` for the `entries` of a config.json, or None: their architecture's own, if it has one."""
    kind, names = entries.get("model_type"), entries.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    return family_of_type(f"{kind}/{name}") or family_of_type(str(kind))


def families_of(backbone):
    """The families that may have our `backbone`: versions of one model."""
    files = files_of(backbone)
    families = [family_of_type(name) for name, table in TABLES.items() if table.partition(".")[0] in files]
    return [family for family in families if type(backbone) is family.model]


def from_huggingface(name: Path, with_head: bool | type = True) -> Any:
    """Read the model in a folder of transformers; a folder of timm is passed on to `from_timm`.

    Args:
        name: a folder, or a hub id, which is looked up in the local cache first.
        with_head: whether to return the model with the head that `architectures` in config.json names, or
            only the backbone. If it is a class of models, one of it comes around a backbone for which no head
            is named; BART's `LanguageModel`, for example, has no weight that the folder must have for it.

    Raises:
        CheckpointError: if anything in the folder is missing or not as expected; it names file and entry.
        FileNotFoundError: if there is no such folder.

    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=50, num_layers=1)
    >>> keras_tfm.convert.save_huggingface(model, "bert")
    >>> keras_tfm.convert.from_huggingface("bert").config == model.config
    True
    """
    folder = find_folder(name)
    path = folder / "config.json"
    entries = read_config(folder)
    if timm.is_timm(entries):
        return timm.from_timm(folder, bool(with_head))
    family = family_of_entries(entries)
    if family is None:
        known = ", ".join(TABLES)
        raise CheckpointError(path, "model_type", f"one of {known}", repr(entries.get("model_type"))[:80])
    head = family.heads.get(_architecture(entries, family, path)) if with_head else None
    if head is None and isinstance(with_head, type):
        head = next((head for head in family.heads.values() if head.model is with_head), None)
    tensors, file = read_weights(folder)
    tensors = _with_modern_names(tensors, family, file)
    prefix = family.prefix_in(tensors)
    tensors = {**family.default_tensors(tensors), **tensors}
    config = family.read_config(entries, path)
    made = family.of(config)
    tensors = made.with_originals(tensors, made.rows_with(head, prefix), prefix)
    config = family.without_parts(config, head, tensors, prefix)
    family = family.of(config)
    rows = family.rows_with(head, prefix)

    def make(config):
        model = family.model(config)
        if head is None:
            return model
        return head.model(model, **head.arguments_for(config), **head.read_options(entries))

    model, read = family.read_model(make, config, tensors, rows, path, file)
    family.check_unread(tensors, read, prefix, file, with_head)
    return model


def head_arguments(backbone: Any, head_class: type, entries: dict) -> tuple[dict, dict]:
    """The arguments for a new `head_class` on `backbone`, and {part: whether the backbone must have it}.

    Both follow the family of the backbone in transformers; they are empty without a family or such a head.

    >>> backbone = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=50, num_layers=1)
    >>> keras_tfm.convert.head_arguments(backbone, keras_tfm.heads.Classifier, {"classifier_dropout": 0.2})
    ({'hidden_dim': None, 'dropout': 0.2}, {'pooler': True})
    """
    for family in families_of(backbone):
        for head in family.heads.values() if family.computes(backbone.config) else ():
            if head.model is head_class:
                options = head.read_options({**entries, "id2label": None, "num_labels": 2})
                options.pop("num_classes", None)  # the caller gives it
                arguments = {**head.arguments_for(backbone.config), **options}
                return arguments, {part: part not in head.missing_parts for part in family.parts}
    return {}, {}


def save_huggingface(
    model: Any,
    folder: Path,
    overwrite: bool = False,
    entries: Mapping[str, Any] | None = None,
    tokenizer: Any = None,
    writers: Iterable[Callable[[pathlib.Path], Any]] = (),
) -> None:
    """Write a model, with or without a head, to a new `folder` that transformers loads.

    Args:
        overwrite: whether to replace a folder that this package wrote.
        entries: more entries for config.json, for example the names of labels.
        tokenizer: a tokenizer to save in the folder.
        writers: functions of a folder that write more files.

    Raises:
        TypeError: for a model of no known family.
        ValueError: for weights in 8 bits, and a configuration that transformers does not have.
        FileExistsError: if `folder` exists and is not to be replaced.

    >>> import os
    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=50, num_layers=1)
    >>> keras_tfm.convert.save_huggingface(model, "bert")
    >>> sorted(os.listdir("bert"))
    ['config.json', 'model.safetensors']
    """
    if quantization_of(model):
        raise ValueError("transformers does not read weights in 8 bits: save the model before quantising it.")
    backbone = getattr(model, "backbone", model)
    families = families_of(backbone)
    if not families:
        raise TypeError(f"{type(backbone).__name__} is of no known family: {', '.join(TABLES)}.")
    family = next((family for family in families if family.computes(backbone.config)), families[0])
    family = family.of(backbone.config)
    architecture, head = (family.backbone, None) if model is backbone else _head_of(model, family)
    config = merged(family.write_config(backbone.config), head.write_options(model) if head else {})
    prefix = family.prefix_with(head)
    tensors = keymap.save(model, family.rows_with(head, prefix))
    for part in head.missing_parts if head else ():
        missing = family.key_in(family.prefix, family.parts[part])
        tensors = {key: x for key, x in tensors.items() if not key.startswith(missing)}
    tensors |= family.buffers_of(tensors)
    derived = family.derived_tensors(backbone.config)
    tensors |= {family.key_in(prefix, key): x for key, x in derived.items()}
    config = {"architectures": [architecture], "dtype": "float32", **config, **(entries or {})}
    tokenizers = [] if tokenizer is None else [tokenizer.save_huggingface]
    write_folder(folder, overwrite, config, tensors, [*tokenizers, *writers])


def merged(entries, others):
    """The `entries` with the `others`, also inside of entries that are dictionaries on both sides."""
    in_both = [name for name in others if isinstance(entries.get(name), dict)]
    return {**entries, **others, **{name: merged(entries[name], others[name]) for name in in_both}}


def _architecture(entries, family, path):
    names = entries.get("architectures") or [family.backbone]
    if not isinstance(names, list) or names[0] not in [family.backbone, *family.heads]:
        known = ", ".join([family.backbone, *family.heads])
        raise CheckpointError(path, "architectures", f"one of {known}", repr(names)[:80])
    return names[0]


def _head_of(model, family):
    for architecture, head in family.heads.items():
        config = model.backbone.config
        arguments = head.arguments_for(config)
        needs = family.parts.keys() - set(head.missing_parts)
        # What transformers' classifiers are where the table does not say otherwise.
        usual = {"pooling": "first"} | ({"use_bias": True} if head.model is Classifier else {})
        if (
            type(model) is head.model
            and all(getattr(model, name, value) == value for name, value in (usual | arguments).items())
            and all(getattr(config, part) for part in needs)
            and not any(getattr(config, part) for part in head.refused_parts)
        ):
            return architecture, head
    raise TypeError(
        f"{type(model).__name__} around {family.model.__name__} has no counterpart in transformers."
    )


def _with_modern_names(tensors, family, path):
    """`tensors` with the table's names: the weights of a LayerNorm had other names before 2019."""
    names = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias", **family.renamed_keys}
    renamed = {}
    for old, tensor in tensors.items():
        key = old
        for other, name in names.items():
            key = key.replace(other, name)
        if key in renamed:
            raise CheckpointError(path, key, "one weight of this name", f"it and {old}")
        renamed[key] = tensor
    return renamed
