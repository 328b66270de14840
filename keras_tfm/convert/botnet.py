"""BoTNet's checkpoints as timm has them (Srinivas et al. 2021), and its attention alone."""

import keras

from keras_tfm.convert.keymap import POINTWISE, batch_norm, convolution, linear, weight
from keras_tfm.convert.state import check_arguments, read_state
from keras_tfm.heads import Classifier
from keras_tfm.models import BoTNet, BoTNetConfig
from keras_tfm.models.vision.botnet import map_attention
from keras_tfm.training.model import Model
from keras_tfm.training.safetensors import CheckpointError

ARCHITECTURES = {"botnet26t_256": "26T"}
BLOCK, THEIRS = "stage_{}_block_{}", "stages.{}.{}"
STEMS = {"7x7": (), "tiered": (3 / 8, 1 / 2)}  # parts of the width, of the convolutions before the last
ARGUMENTS = {
    "img_size",
    "in_chans",
    "num_classes",
    "stem_type",
    "stem_pool",
    "stem_chs",
    "act_layer",
    "num_heads",
    "blocks",
}


def rows(config):
    """The table of a configuration, the classifier's rows too."""
    table = [
        *_normalized(f"{BLOCK}/shortcut", f"{THEIRS}.shortcut"),
        *_normalized(f"{BLOCK}/branch/layer_0", f"{THEIRS}.conv1_1x1"),
        *_normalized(f"{BLOCK}/branch/layer_1", f"{THEIRS}.conv2_kxk"),
        *attention_rows(f"{BLOCK}/branch/layer_1/layer_0/attention", f"{THEIRS}.self_attn."),
        *batch_norm(f"{BLOCK}/branch/layer_2", f"{THEIRS}.post_attn"),
        *_normalized(f"{BLOCK}/branch/layer_2", f"{THEIRS}.conv3_1x1"),  # where a block convolves
        *_normalized(f"{BLOCK}/branch/layer_4", f"{THEIRS}.conv3_1x1"),  # where it attends
        *linear("head/output", "head.fc"),
    ]
    for i in range(len(config.inner_stem_dims) + 1):
        table += _normalized(f"stem/layer_{i}", f"stem.conv{i + 1}")
    return table


def attention_rows(ours, theirs):
    """An attention's rows; `theirs` ends in a full stop, or is nothing."""
    return [
        *linear(f"{ours}/projections/query_key_value", f"{theirs}qkv", transform=POINTWISE),
        *weight(f"{ours}/position/vertical", f"{theirs}pos_embed.height_rel"),
        *weight(f"{ours}/position/horizontal", f"{theirs}pos_embed.width_rel"),
    ]


def _normalized(ours, theirs):
    return [*convolution(ours, f"{theirs}.conv"), *batch_norm(f"{ours}/norm", f"{theirs}.bn")]


def config_of(arguments):
    """Our configuration of timm's arguments, those of a `ByoModelCfg` among them; without `blocks` it is
    botnet26t_256.

    CheckpointError for those that mean another model.
    """
    check_arguments(arguments, ARGUMENTS)
    if arguments.get("stem_pool", "maxpool") != "maxpool":
        raise CheckpointError("timm", "stem_pool", "maxpool", repr(arguments["stem_pool"]))
    if (stem := arguments.get("stem_type", "tiered")) not in STEMS:
        raise CheckpointError("timm", "stem_type", f"one of {', '.join(STEMS)}", repr(stem))
    size, dim = BoTNet.sizes["26T"], arguments.get("stem_chs", 64)
    common: dict = {
        "image_size": arguments.get("img_size", 256),
        "num_channels": arguments.get("in_chans", 3),
        "num_heads": arguments.get("num_heads", 4),
        "stem_dim": dim,
        "inner_stem_dims": tuple(int(part * dim) for part in STEMS[stem]),
        "activation": arguments.get("act_layer", "relu"),
        "scale_positions": False,
    }
    fields = ("dims", "depths", "inner_dims", "strides", "attending")
    if "blocks" not in arguments:
        return BoTNetConfig(**common | {name: getattr(size, name) for name in fields})
    stages = [stage if isinstance(stage, list | tuple) else [stage] for stage in arguments["blocks"]]
    values = [_stage(stage) for stage in stages]
    return BoTNetConfig(**common | dict(zip(fields, zip(*values, strict=True), strict=True)))


def _stage(parts):
    """(Width, depth, inner width, stride, how many blocks attend) of a stage's parts of equal blocks."""
    kinds = [part["type"] for part in parts for _ in range(part["d"])]
    attending = kinds.count("self_attn")
    if kinds != ["bottle"] * (len(kinds) - attending) + ["self_attn"] * attending:
        raise CheckpointError("timm", "blocks", "bottlenecks, then some that attend", ", ".join(kinds))
    first = parts[0]
    return first["c"], len(kinds), _divisible(first["c"] * first["br"]), first["s"], attending


def _divisible(width, by=8):
    """The multiple that timm rounds a width to."""
    rounded = max(by, int(width + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * width else rounded


def read(arguments, weights):
    """Our model of timm's class, and its outputs by the names of theirs."""
    config = config_of(arguments)
    backbone = BoTNet(config)
    model = Classifier(backbone, arguments.get("num_classes", 1000))
    read_state(model, weights, rows(config))
    stem = backbone.hidden_states["encoder"][0]
    maps = {f"features/stage_{i}": x for i, x in enumerate(backbone.maps)}
    return model, {"logits": model.output, "features/stem": stem, **maps}


def read_attention(arguments, weights):
    """A model of our attention for timm's layer."""
    known = {"dim_out": arguments["dim"], "stride": 1, "qk_ratio": 1.0, "qkv_bias": False}
    for name, value in known.items():
        if arguments.get(name, value) != value:
            raise CheckpointError("timm", name, repr(value), repr(arguments[name]))
    grid = tuple(arguments["feat_size"])
    attention = map_attention(arguments["num_heads"], grid, arguments["scale_pos_embed"], name="attention")
    images = keras.Input((*grid, arguments["dim"]), name="images")
    model = Model({"images": images}, attention(images))
    read_state(model, weights, attention_rows("attention/attention", ""))
    return model, {"output": model.output}
