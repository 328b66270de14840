"""Classifiers from and to timm's folders: a config.json that names an "architecture", and model.safetensors.

The file of a family holds a `TimmFamily`, TIMM. The entries that it converts are the arguments of timm's
class; a folder contains the arguments that differ from its architecture's.
"""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from keras_tfm.configs import brief
from keras_tfm.convert import keymap
from keras_tfm.convert.entries import Entries, names_of
from keras_tfm.convert.family import MAX_LABELS, files_of
from keras_tfm.convert.folder import find_folder, read_config, read_weights, write_folder
from keras_tfm.convert.timm_preprocessing import timm_entries
from keras_tfm.heads import Classifier, DistilledClassifier
from keras_tfm.training.folder import Path
from keras_tfm.training.quantization import quantization_of
from keras_tfm.training.safetensors import CheckpointError

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
# The fields of models whose blocks all read patches of one width.
PATCHED_FIELDS = {
    "image_size": "img_size",
    "patch_size": "patch_size",
    "num_channels": "in_chans",
    "dim": "embed_dim",
    "num_layers": "depth",
    "num_heads": "num_heads",
}
HEAD_ARGUMENTS = ("num_classes", "drop_rate")  # arguments of the classifier, for every backbone


def as_they_are(_, tensors):
    """The tensors, unchanged: the default for `read_tensors` and `write_tensors`."""
    return tensors


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimmFamily(Entries):
    """The conversion of one family of timm's classifiers; its `rows` include the classifier's.

    Other entries than the declared ones are refused, as are derived ones with other values than follow from
    our configuration. Fixed ones are their defaults, and not written.

    Args:
        architectures: {timm's name: our size}, of which only the image's size may differ.
        default_entries: stochastic depth is 0 in timm, whatever our sizes have.
        named_entries: entries that follow from the architecture's name: a folder does not contain them.
        has_image_size: whether `img_size` is an argument of timm's class; all folders contain the size.
        read_tensors: `read_tensors(config, tensors)` prepares timm's for the rows, where a table cannot
            express how they differ.
        write_tensors: the reverse.
    """

    architectures: Mapping[str, str]
    default_entries: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"drop_path_rate": 0.0})
    named_entries: tuple[str, ...] = ()
    has_image_size: bool = True
    read_tensors: Callable = as_they_are
    write_tensors: Callable = as_they_are

    @property
    def their_class(self):
        return "timm's class"

    def size_of(self, architecture):
        """Our configuration of the `architecture` with this name."""
        return self.model.sizes[self.architectures[architecture]]

    def read_config(self, entries, path="config.json"):
        """Our configuration for timm's arguments; CheckpointError for arguments of another model."""
        entries = {name: value for name, value in entries.items() if name not in HEAD_ARGUMENTS}
        fields = (name for theirs in self.fields.values() for name in names_of(theirs))
        known = dict.fromkeys([*fields, *self.derived_entries, *self.fixed_entries])
        for name, value in entries.items():
            if name not in known:
                raise CheckpointError(path, name, f"an argument out of {', '.join(known)}", brief(value))
        config = super().read_config(entries, path)
        for name, function in self.derived_entries.items():
            if name not in self.named_entries and entries.get(name, value := function(config)) != value:
                raise CheckpointError(path, name, repr(value), brief(entries[name]))
        return config

    def write_config(self, config):
        """timm's arguments for our configuration; ValueError for one that timm does not have."""
        entries = super().write_config(config)
        if not self.has_image_size:
            del entries["img_size"]
        return entries


def family_of(architecture):
    """The `TimmFamily` with timm's `architecture`, or None; few other files are imported."""
    for name, prefixes in FAMILIES.items():
        if architecture.startswith(prefixes):
            family = importlib.import_module(f"keras_tfm.convert.{name}").TIMM
            if architecture in family.architectures:
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
    usual = family.write_config(family.size_of(architecture)) | family.default_entries
    said = {name: value for name, value in arguments.items() if value is not None or name in usual}
    config = family.read_config({k: x for k, x in usual.items() if k not in said} | said, path)
    rows = family.rows_of(config)
    unread = [key for key in tensors if key.endswith(BUFFERS)]
    if not with_head:
        unread += [key for row in rows if row.ours.startswith(HEAD) for key in row.theirs]

    def make(config):
        model = family.model(config)
        return _head_class(model)(model, num_classes, dropout=dropout) if num_classes and with_head else model

    tensors = family.read_tensors(config, tensors)
    model, read = family.read_model(make, config, tensors, rows, path, file)
    keymap.check_unread(tensors, read, unread, file)
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
    config, names = backbone.config, family.architectures
    if architecture is not None and architecture not in names:
        raise ValueError(f"`architecture` must be one of {', '.join(names)}; it is {architecture!r}.")
    arguments = family.write_config(config)
    architecture = architecture or _architecture(family, config, arguments)
    usual = family.write_config(family.size_of(architecture))
    for name in family.named_entries:
        if (value := arguments.pop(name)) != usual[name]:
            expected = f"`{name}` {usual[name]} for {architecture}"
            raise ValueError(f"timm's function computes only {expected}; it is {value}.")
    rows = family.rows_of(config)
    heads = [row.theirs[0].removesuffix(".weight") for row in rows if row.ours in HEAD_KERNELS]
    entries = {
        "architecture": architecture,
        "num_classes": model.num_classes,
        "model_args": {**arguments, "drop_rate": model.dropout},
        "pretrained_cfg": {
            **timm_entries(preprocessing, backbone.input["images"].shape[1:]),
            "num_classes": model.num_classes,
            "fixed_input_size": family.has_image_size,
            "classifier": heads[: 1 + (type(model) is DistilledClassifier)],
        },
    }
    if class_names is not None:
        entries["label_names"] = [str(name) for name in class_names]
        if len(class_names) != model.num_classes:
            raise ValueError(
                f"`class_names` must be {model.num_classes}, one for each class; they are {len(class_names)}."
            )
    write_folder(folder, overwrite, entries, family.write_tensors(config, keymap.save(model, rows)))


HEAD_KERNELS = tuple(f"{part}output/kernel" for part in HEAD)


def _arguments(entries, path):
    """(timm's arguments, the number of classes, the dropout before the classifier) of a config.json."""
    arguments = entries.get("model_args", {})
    source = entries.get("pretrained_cfg", entries)  # older files have no such part
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
    return arguments, num_classes, dropout


def _architecture(family, config, arguments):
    """timm's name for the size of our `config`, or the first one whose fixed properties fit."""
    sizes = {name: family.size_of(name) for name in family.architectures}
    free = {"image_size", "stochastic_depth"} & {field.name for field in dataclasses.fields(config)}
    changes = {name: getattr(config, name) for name in free}
    named = {name: arguments[name] for name in family.named_entries}
    exact = [name for name, size in sizes.items() if dataclasses.replace(size, **changes) == config]
    fitting = [name for name, size in sizes.items() if named.items() <= family.write_config(size).items()]
    return next(iter([*exact, *fitting, *sizes]))


def _head_class(backbone):
    return DistilledClassifier if "distilled_output" in backbone.output else Classifier


def _family_of_model(backbone):
    """The `TimmFamily` of our `backbone`, or None if timm does not have it."""
    for name in files_of(backbone):
        family: Any = importlib.import_module(f"keras_tfm.convert.{name}").TIMM if name in FAMILIES else None
        if family is not None and type(backbone) is family.model:
            return family
    return None
