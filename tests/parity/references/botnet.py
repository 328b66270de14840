"""timm's BoTNet, of any blocks (Srinivas et al. 2021), and its attention alone."""

import keras

from keras_tfm.convert.botnet import TIERED, attention_rows, divisible, rows
from keras_tfm.convert.keymap import read_state
from keras_tfm.heads import Classifier
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.models import BoTNet, BoTNetConfig
from keras_tfm.models.vision.botnet import map_attention
from keras_tfm.training.model import Model
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import check_arguments

# {kind of stem: the widths of the convolutions before the last one, as shares of the last one's width}
STEMS = {"7x7": (), "tiered": TIERED}
# Arguments of timm's class when it is made directly, with the fields of its `ByoModelCfg`.
CLASS_ARGUMENTS = {
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


def class_config_of(arguments):
    """Our configuration for the arguments of timm's class, among them the fields of a `ByoModelCfg`.

    Without `blocks` it is botnet26t_256. CheckpointError for arguments of another model.
    """
    check_arguments(arguments, CLASS_ARGUMENTS)
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
    """(Width, depth, inner width, stride, number of attending blocks) of a stage, given as runs of equal
    blocks.
    """
    kinds = [part["type"] for part in parts for _ in range(part["d"])]
    attending = kinds.count("self_attn")
    if kinds != ["bottle"] * (len(kinds) - attending) + ["self_attn"] * attending:
        raise CheckpointError("timm", "blocks", "bottlenecks, then some that attend", ", ".join(kinds))
    first = parts[0]
    return first["c"], len(kinds), divisible(first["c"] * first["br"]), first["s"], attending


def read(arguments, weights):
    """The model for timm's `arguments` and `weights`, and its outputs by timm's names."""
    config = class_config_of(arguments)
    backbone = BoTNet(config)
    model = Classifier(backbone, arguments.get("num_classes", 1000))
    read_state(model, weights, rows(config))
    stem = backbone.hidden_states["encoder"][0]
    maps = {f"features/stage_{i}": x for i, x in enumerate(backbone.maps)}
    return model, {"logits": model.output, "features/stem": stem, **maps}


def read_attention(arguments, weights):
    """A model of our attention for timm's layer, of any width of its output and of its queries and keys."""
    num_heads, dim = arguments["num_heads"], arguments.get("dim_out") or arguments["dim"]
    ratio = arguments.get("qk_ratio", 1.0)
    key_dim = arguments.get("dim_head") or divisible(dim * ratio) // num_heads
    projections = HeadProjections(
        num_heads, key_dim, dim // num_heads, use_bias=arguments.get("qkv_bias", False)
    )
    grid = tuple(arguments["feat_size"])
    attention = map_attention(projections, grid, arguments.get("scale_pos_embed", False), name="attention")
    images = keras.Input((*grid, arguments["dim"]), name="images")
    output = attention(images)
    if arguments.get("stride", 1) == 2:
        output = keras.layers.AveragePooling2D(2)(output)
    model = Model({"images": images}, output)
    read_state(model, weights, attention_rows("attention/attention", ""))
    return model, {"output": model.output}
