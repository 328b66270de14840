"""BiT's checkpoints with the names of transformers and of timm (Kolesnikov et al. 2020)."""

from keras_tfm.convert.arguments import Arguments, times
from keras_tfm.convert.family import Entry, Family
from keras_tfm.convert.keymap import POINTWISE, convolution, linear, norm
from keras_tfm.convert.resnet import BLOCK, CLASSIFIER, FIELDS, inner
from keras_tfm.models import BiT
from keras_tfm.models.vision.resnet import BiTConfig

MODEL = BiT
ARCHITECTURES = {f"resnetv2_{size}_bit": size for size in BiT.sizes}
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
    shapes={
        "embedder.convolution.weight": ("stem_dim", "num_channels", lambda _: 7, lambda _: 7),
        "encoder.stages.0.layers.0.norm2.weight": (inner,),
    },
    rows=rows,
    heads={"BitForImageClassification": CLASSIFIER},
)


ARGUMENTS = Arguments(
    BiT,
    fields={
        "img_size": "image_size",
        "in_chans": "num_channels",
        "layers": "depths",
        "channels": "dims",
        "stem_chs": "stem_dim",
        "drop_path_rate": "stochastic_depth",
    },
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
    named=("layers", "width_factor"),
)


def config_of(arguments):
    """Our configuration for timm's arguments and `img_size`, which timm's class does not have."""
    given = {"channels": WIDTHS, "stem_chs": 64, "width_factor": 1, **arguments}
    factor, channels, stem = (given.pop(name) for name in ("width_factor", "channels", "stem_chs"))
    factors = [factor] * len(channels) if isinstance(channels, list | tuple) else None
    widths = {"channels": times(factors, channels), "stem_chs": times(factor, stem)}
    return ARGUMENTS.config_of(given | widths)


def arguments_of(config):
    """timm's arguments for a configuration; ValueError for one that timm does not have.

    The width factor of a published size is part of timm's name; for other widths it is 1.
    """
    factor, arguments = config.dims[0] // WIDTHS[0], ARGUMENTS.arguments_of(config)
    if (config.stem_dim, *config.dims) != tuple(factor * dim for dim in (64, *WIDTHS)):
        factor = 1
    channels = tuple(dim // factor for dim in config.dims)
    widths = {"width_factor": factor, "channels": channels, "stem_chs": config.stem_dim // factor}
    return {name: x for name, x in (arguments | widths).items() if name != "img_size"}
