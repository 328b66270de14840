"""Classifiers from and to timm's folders: a config.json that names an "architecture", and model.safetensors.

The file of a family has these names (see `Family` below): `MODEL`, our class; `ARCHITECTURES`, {timm's name:
our size}; `ARGUMENTS`, the table of the constructor's arguments in timm; `config_of(arguments)`, our
configuration for them, and `arguments_of(config)`, the reverse; `rows(config)`, the table of weights with
the classifier's, or `timm_rows` if `rows` has the names of transformers. If a table cannot express how
weights differ, `from_timm_weights(config, tensors)` prepares them for it, and `to_timm_weights` is the
reverse.
"""

import dataclasses
import importlib
import json
from collections.abc import Callable
from typing import Any, Protocol

from keras_tfm.configs import refuse_sizes
from keras_tfm.convert import keymap
from keras_tfm.convert.arguments import HEAD_ARGUMENTS, Arguments
from keras_tfm.convert.family import MAX_LABELS, files_of
from keras_tfm.convert.folder import WEIGHTS, find_folder, read_config, read_weights
from keras_tfm.convert.keymap import read_state
from keras_tfm.convert.timm_preprocessing import timm_entries
from keras_tfm.heads import Classifier, DistilledClassifier
from keras_tfm.training.folder import MARK, Path, new_folder
from keras_tfm.training.quantization import quantization_of
from keras_tfm.training.safetensors import CheckpointError
from keras_tfm.training.weights import write_tensors
from keras_tfm.version import __version__

# The beginnings of timm's names, by the file of the family.
FAMILIES = {
    "bit": ("resnetv2_",),
    "botnet": ("botnet",),
    "cait": ("cait_",),
    "deit": ("deit_",),
    "dinov2": ("vit_",),
    "hybrid_vit": ("vit_",),
    "levit": ("levit_",),
    "mlp_mixer": ("mixer_",),
    "pit": ("pit_",),
    "resnet": ("resnet",),
    "swin": ("swin_",),
    "swin_v2": ("swinv2_",),
    "tnt": ("tnt_",),
    "twins": ("twins_",),
    "visformer": ("visformer_",),
    "vit": ("vit_", "deit_"),
    "xcit": ("xcit_",),
}
HEAD = ("head/", "distilled_head/")
# Tensors of timm's modules that are not weights: they follow from the configuration, or count batches.
BUFFERS = ("relative_position_index", "attn_mask", "num_batches_tracked", "attention_bias_idxs")


class Family(Protocol):
    """The names that the file of a family defines."""

    MODEL: Any
    ARCHITECTURES: dict[str, str]
    ARGUMENTS: Arguments
    config_of: Callable
    arguments_of: Callable
    rows: Callable


def family_of(architecture):
    """The file of the family with timm's `architecture`, or None; few other files are imported."""
    for name, prefixes in FAMILIES.items():
        if architecture.startswith(prefixes):
            family: Any = importlib.import_module(f"keras_tfm.convert.{name}")
            if architecture in family.ARCHITECTURES:
                return family
    return None


def is_timm(entries):
    """Whether a config.json of these `entries` is timm's."""
    return "architecture" in entries and "model_type" not in entries


def from_timm(name: Path, with_head: bool = True) -> Any:
    """Read the classifier in a folder of timm: a `Classifier`, or a `DistilledClassifier`.

    Args:
        name: a folder, or a hub id, which is looked up in the local cache first.
        with_head: False returns only the backbone, as does a folder without classes.

    Raises:
        CheckpointError: if anything in the folder is missing or not as expected; it names file and entry.
        FileNotFoundError: if there is no such folder.

    >>> backbone = keras_tfm.models.ViT.from_size("tiny", num_layers=1)
    >>> keras_tfm.convert.save_timm(keras_tfm.heads.Classifier(backbone, num_classes=3), "vit")
    >>> keras_tfm.convert.from_timm("vit").num_classes
    3
    """
    folder = find_folder(name)
    path, entries = folder / "config.json", read_config(folder)
    architecture = str(entries.get("architecture")).partition(".")[0]
    family = family_of(architecture)
    if family is None:
        known = ", ".join(sorted({f"{prefix}..." for prefixes in FAMILIES.values() for prefix in prefixes}))
        raise CheckpointError(path, "architecture", f"a known one out of {known}", architecture[:80])
    tensors, file = read_weights(folder)
    arguments, num_classes, dropout = _arguments(entries, path)
    size = family.MODEL.sizes[family.ARCHITECTURES[architecture]]
    try:
        usual = {**family.arguments_of(size), **family.ARGUMENTS.default_entries}
        said = {k: x for k, x in arguments.items() if x is not None or k in usual}
        config = family.config_of({k: x for k, x in usual.items() if k not in said} | said)
        refuse_sizes(config, [tensor.shape for tensor in tensors.values()])
        model = family.MODEL(config)
        if num_classes and with_head:
            model = _head_class(model)(model, num_classes, dropout=dropout)
    except CheckpointError as error:
        raise CheckpointError(path, error.key, error.expected, error.got) from None
    except (ValueError, TypeError) as error:
        raise CheckpointError(path, "model_args", "timm's arguments", str(error)) from None
    rows = rows_of(family, config)
    left = [key for row in rows if row.ours.startswith(HEAD) for key in row.theirs] if not with_head else []
    buffers = [key for key in tensors if key.endswith(BUFFERS)]
    tensors = getattr(family, "from_timm_weights", as_they_are)(config, tensors)
    read_state(model, tensors, rows, [*left, *buffers], file)
    return model


def save_timm(
    model: Any,
    folder: Path,
    architecture: str | None = None,
    preprocessing: Any = None,
    class_names: Any = None,
    overwrite: bool = False,
) -> None:
    """Write a classifier to a new `folder`, which `timm.create_model("local-dir:FOLDER", pretrained=True)`
    loads.

    Args:
        architecture: timm's name of a model of the same family. The folder stores all differences from it. By
            default it is the name of the model's size, or the first name of the family that fits.
        preprocessing: the preprocessing of images; see `timm_entries`.
        class_names: the names of the classes.
        overwrite: whether to replace a folder that this package wrote.

    Raises:
        TypeError: for a model that timm does not have.
        ValueError: for an unknown architecture, a configuration that timm does not have, or a wrong number of
            names.
        FileExistsError: if `folder` exists and is not to be replaced.

    >>> import os
    >>> backbone = keras_tfm.models.ViT.from_size("tiny", num_layers=1)
    >>> model = keras_tfm.heads.Classifier(backbone, num_classes=2)
    >>> keras_tfm.convert.save_timm(model, "vit", class_names=["cat", "dog"])
    >>> sorted(os.listdir("vit"))
    ['config.json', 'model.safetensors']
    """
    if quantization_of(model):
        raise ValueError("timm does not read weights in 8 bits: save the model before quantising it.")
    backbone: Any = getattr(model, "backbone", None)
    family = _family_of_model(backbone)
    linear = getattr(model, "hidden_dim", None) is None and getattr(model, "pooling", "first") == "first"
    if family is None or type(model) is not _head_class(backbone) or not linear:
        kind = type(model).__name__ if backbone is None else f"{type(model).__name__} around {backbone.name}"
        raise TypeError(f"{kind} has no counterpart in timm.")
    config, sizes = backbone.config, family.ARCHITECTURES
    if architecture is not None and architecture not in sizes:
        raise ValueError(f"`architecture` must be one of {', '.join(sizes)}; it is {architecture!r}.")
    arguments, named = family.arguments_of(config), family.ARGUMENTS.named
    architecture = architecture or _architecture(family, config, arguments)
    usual = family.arguments_of(family.MODEL.sizes[sizes[architecture]])
    for name in named:
        if arguments[name] != usual[name]:
            expected = f"`{name}` {usual[name]} for {architecture}"
            raise ValueError(f"timm's function computes only {expected}; it is {arguments[name]}.")
    arguments = {name: x for name, x in arguments.items() if name not in named}
    image_shape = backbone.input["images"].shape[1:]
    rows = rows_of(family, config)
    heads = [row.theirs[0].removesuffix(".weight") for row in rows if row.ours in HEAD_KERNELS]
    entries = {
        "architecture": architecture,
        "num_classes": model.num_classes,
        "model_args": {**arguments, "drop_rate": model.dropout},
        "pretrained_cfg": {
            **timm_entries(preprocessing, image_shape),
            "num_classes": model.num_classes,
            "fixed_input_size": "img_size" in arguments,
            "classifier": heads[: 1 + (type(model) is DistilledClassifier)],
        },
        MARK: __version__,
    }
    if class_names is not None:
        entries["label_names"] = [str(name) for name in class_names]
        if len(class_names) != model.num_classes:
            raise ValueError(
                f"`class_names` must be {model.num_classes}, one for each class; they are {len(class_names)}."
            )
    with new_folder(folder, overwrite) as work:
        text = json.dumps(entries, indent=2, ensure_ascii=False)
        (work / "config.json").write_text(text + "\n", "utf-8")
        tensors = getattr(family, "to_timm_weights", as_they_are)(config, keymap.save(model, rows))
        write_tensors(tensors, work / WEIGHTS, {"format": "pt"})


HEAD_KERNELS = tuple(f"{part}output/kernel" for part in HEAD)


def rows_of(family, config):
    """The table with timm's names in a family's file."""
    return (family.timm_rows if hasattr(family, "timm_rows") else family.rows)(config)


def as_they_are(_, tensors):
    """The tensors, unchanged: the default for `from_timm_weights` and `to_timm_weights`."""
    return tensors


def _arguments(entries, path):
    """(timm's arguments, the number of classes, the dropout before the classifier) of a config.json."""
    arguments, source = entries.get("model_args", {}), entries.get("pretrained_cfg", {})
    for name, value in (("model_args", arguments), ("pretrained_cfg", source)):
        if not isinstance(value, dict):
            raise CheckpointError(path, name, "an object", type(value).__name__)
    found = [x["num_classes"] for x in (arguments, entries, source) if x.get("num_classes") is not None]
    num_classes = found[0] if found else 1000
    if type(num_classes) is not int or not 0 <= num_classes <= MAX_LABELS:
        raise CheckpointError(path, "num_classes", f"0 to {MAX_LABELS}", repr(num_classes)[:80])
    dropout = arguments.get("drop_rate", 0.0)
    if type(dropout) not in (int, float) or not 0 <= dropout < 1:
        raise CheckpointError(path, "drop_rate", "a rate in [0, 1)", repr(dropout)[:80])
    size = source.get("input_size")
    if isinstance(size, list) and len(size) == 3:
        arguments = {"img_size": size[1:], "in_chans": size[0], **arguments}
    arguments = {k: x for k, x in arguments.items() if k not in HEAD_ARGUMENTS}
    return arguments, num_classes, dropout


def _architecture(family, config, arguments):
    """timm's name for the size of our `config`, or the first one whose fixed properties fit."""
    sizes = {name: family.MODEL.sizes[size] for name, size in family.ARCHITECTURES.items()}
    free = {"image_size", "stochastic_depth"} & {field.name for field in dataclasses.fields(config)}
    own = {name: getattr(config, name) for name in free}
    named = {name: arguments[name] for name in family.ARGUMENTS.named}
    exact = [name for name, size in sizes.items() if dataclasses.replace(size, **own) == config]
    fitting = [name for name, size in sizes.items() if named.items() <= family.arguments_of(size).items()]
    return next(iter([*exact, *fitting, *sizes]))


def _head_class(backbone):
    return DistilledClassifier if "distilled_output" in backbone.output else Classifier


def _family_of_model(backbone):
    """The file of the family of our `backbone`, or None if timm does not have it."""
    for name in files_of(backbone):
        family: Any = importlib.import_module(f"keras_tfm.convert.{name}") if name in FAMILIES else None
        if family is not None and type(backbone) is family.MODEL:
            return family
    return None
