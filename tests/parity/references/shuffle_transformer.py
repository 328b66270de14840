"""The Shuffle Transformer's checkpoints in the format of the authors' code (Huang et al. 2021)."""

from keras_tfm.convert.keymap import (
    POINTWISE,
    batch_norm,
    convolution,
    depthwise_kernel,
    linear,
    patches,
    read_state,
    weight,
)
from keras_tfm.heads import Classifier
from keras_tfm.models import ShuffleTransformer, ShuffleTransformerConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import fields_of

FIELDS = {
    "img_size": "image_size",
    "in_chans": "num_channels",
    "token_dim": "stem_dim",
    "layers": "depths",
    "num_heads": "num_heads",
    "window_size": "window",
    "mlp_ratio": "mlp_ratio",
    "drop_rate": "dropout",
    "attn_drop_rate": "attention_dropout",
    "drop_path_rate": "stochastic_depth",
}
# Other values are not supported. The last one turns on the bias of the convolution, not of the queries.
FIXED = {"relative_pos_embedding": True, "shuffle": True, "qkv_bias": True}


def rows(config):
    """The table of a configuration; in theirs the blocks of a stage are grouped in pairs."""
    table = [
        *linear("stem/layer_2", "to_token.conv3", transform=POINTWISE),
        *linear("head/output", "head"),
    ]
    for i in range(2):
        table += convolution(f"stem/layer_{i}", f"to_token.conv{i + 1}.0")
        table += batch_norm(f"stem/layer_{i}/norm", f"to_token.conv{i + 1}.1")
    for stage, depth in enumerate(config.depths):
        ours, theirs = f"stage_{stage}", f"stage{stage + 1}"
        table += batch_norm(f"{ours}_merging_norm", f"{theirs}.patch_partition.norm")
        table += patches(f"{ours}_merging", f"{theirs}.patch_partition.reduction", 2)
        for i in range(depth):
            table += block_rows(f"{ours}_block_{i}", f"{theirs}.layers.{i // 2}.{i % 2}")
    return table


def block_rows(ours, theirs):
    """The rows of one block."""
    attention = f"{ours}/attention/branch/attention"
    table = [
        *weight(f"{attention}/projections/query_key_value/kernel", f"{theirs}.attn.to_qkv.weight", POINTWISE),
        *weight(f"{attention}/position/table", f"{theirs}.attn.relative_position_bias_table"),
        *linear(f"{attention}/output", f"{theirs}.attn.proj", transform=POINTWISE),
        *convolution(f"{ours}/neighbours/branch", f"{theirs}.local", depthwise_kernel()),
        *linear(f"{ours}/feedforward/branch/hidden", f"{theirs}.mlp.fc1", transform=POINTWISE),
        *linear(f"{ours}/feedforward/branch/output", f"{theirs}.mlp.fc2", transform=POINTWISE),
    ]
    for i, part in enumerate(("attention", "neighbours", "feedforward"), start=1):
        table += batch_norm(f"{ours}/{part}/norm", f"{theirs}.norm{i}")
    return table


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    for name, value in FIXED.items():
        if arguments.get(name, value) != value:
            raise CheckpointError("ShuffleTransformer", name, f"{value}", f"{arguments[name]}")
    known = {key: x for key, x in arguments.items() if key not in (*FIXED, "embed_dim")}
    config = ShuffleTransformerConfig.from_json(fields_of(known, FIELDS))
    if arguments.get("embed_dim", config.widths[0]) != config.widths[0]:
        expected = f"{config.widths[0]}, as `num_heads` say"
        raise CheckpointError("ShuffleTransformer", "embed_dim", expected, f"{arguments['embed_dim']}")
    backbone = ShuffleTransformer(config)
    model = Classifier(backbone, arguments.get("num_classes", 1000))
    read_state(model, weights, rows(config))
    outputs = {"logits": model.output, "features/embed": backbone.hidden_states["encoder"][0]}
    return model, outputs | {f"features/stage_{i}": x for i, x in enumerate(backbone.maps)}
