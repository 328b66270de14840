"""BiT's checkpoints with the names of transformers and of timm (Kolesnikov et al. 2020)."""

from keras_tfm.convert.entries import Entry, times
from keras_tfm.convert.family import Family
from keras_tfm.convert.keymap import POINTWISE, convolution, linear, norm
from keras_tfm.convert.resnet import BLOCK, CLASSIFIER, FIELDS
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import BiT
from keras_tfm.models.vision.resnet import BiTConfig

WIDTHS = BiTConfig().dims  # the widths for the factor 1


def rows(config):
    """The table with transformers' names; there a norm stands before the convolution of its number."""
    theirs = "encoder.stages.{}.layers.{}"
    return [*convolution("stem", "embedder.convolution"), *_blocks(theirs), *norm("norm/layer_0", "norm")]


def timm_rows(config):
    """The table with timm's names and the classifier, which is a convolution there."""
    return [
        *convolution("stem", "stem.conv"),
        *_blocks("stages.{}.blocks.{}"),
        *norm("norm/layer_0", "norm"),
        *linear("head/output", "head.fc", transform=POINTWISE),
    ]


def _blocks(theirs):
    table = [
        *convolution(f"{BLOCK}/shortcut", f"{theirs}.downsample.conv"),
        *norm(f"{BLOCK}/norm/layer_0", f"{theirs}.norm1"),
    ]
    for i in range(3):
        table += convolution(f"{BLOCK}/branch/layer_{i}", f"{theirs}.conv{i + 1}")
    for i in range(2):
        table += norm(f"{BLOCK}/branch/layer_{i}/norm/layer_0", f"{theirs}.norm{i + 2}")
    return table


def read_depths(value, _):
    """Our depths for theirs; from a fifth stage on they dilate convolutions, which is refused."""
    if len(value) > 4:
        raise ValueError
    return value


def write_depths(config):
    """Their depths for ours; ValueError for more stages than both compute in the same way."""
    if len(config.depths) > 4:
        raise ValueError(f"BitModel computes only four stages; there are {len(config.depths)}.")
    return config.depths


FAMILY = Family(
    model_type="bit",
    backbone="BitModel",
    model=BiT,
    prefix="bit.",
    fields={
        **FIELDS,
        "depths": Entry("depths", read_depths, write_depths),
        "num_groups": "num_groups",
        "stochastic_depth": "drop_path_rate",
    },
    fixed_entries={
        "hidden_act": "relu",
        "layer_type": "preactivation",
        "global_padding": None,
        "embedding_dynamic_padding": False,
        "width_factor": 1,
        "output_stride": 32,
    },
    rows=rows,
    heads={"BitForImageClassification": CLASSIFIER},
)


def factor_of(config):
    """timm's factor of the widths, which is part of a published size's name; for other widths it is 1."""
    factor = config.dims[0] // WIDTHS[0]
    is_published = (config.stem_dim, *config.dims) == tuple(factor * dim for dim in (64, *WIDTHS))
    return factor if is_published else 1


TIMM = TimmFamily(
    model=BiT,
    rows=timm_rows,
    architectures={f"resnetv2_{size}_bit": size for size in BiT.sizes},
    fields={
        "image_size": "img_size",
        "num_channels": "in_chans",
        "depths": "layers",
        "dims": Entry(
            "channels",
            lambda widths, entries: times([entries["width_factor"]] * len(widths), widths),
            lambda config: tuple(dim // factor_of(config) for dim in config.dims),
        ),
        "stem_dim": Entry(
            "stem_chs",
            lambda width, entries: times(entries["width_factor"], width),
            lambda config: config.stem_dim // factor_of(config),
        ),
        "stochastic_depth": "drop_path_rate",
    },
    derived_entries={"width_factor": factor_of},
    fixed_entries={
        "global_pool": "avg",
        "output_stride": 32,
        "stem_type": "fixed",
        "avg_down": False,
        "preact": True,
        "basic": False,
        "bottle_ratio": 0.25,
    },
    fixed_fields={"num_groups": 32},
    named_entries=("layers", "width_factor"),
    has_image_size=False,
)
