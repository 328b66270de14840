"""CMT's checkpoints in the format of the authors' code (Guo et al. 2022)."""

from keras_tfm.convert.keymap import (
    POINTWISE,
    batch_norm,
    convolution,
    depthwise_kernel,
    linear,
    norm,
    patches,
    read_state,
    weight,
)
from keras_tfm.heads import Classifier
from keras_tfm.models import CMT, CMTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import as_sequences, fields_of

FIELDS = {
    "img_size": "image_size",
    "in_chans": "num_channels",
    "stem_channel": "stem_dim",
    "embed_dims": "dims",
    "depths": "depths",
    "num_heads": "num_heads",
    "mlp_ratios": "mlp_ratios",
    "sr_ratios": "reductions",
    "fc_dim": "output_dim",
    "drop_rate": "dropout",
    "attn_drop_rate": "attention_dropout",
    "drop_path_rate": "stochastic_depth",
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"  # theirs names the stages by letters


def rows(config):
    """The table of weights for a configuration."""
    table = [
        *convolution("projection", "_fc"),
        *batch_norm("projection/norm", "_bn"),
        *linear("head/output", "head"),
    ]
    for i in range(3):
        table += convolution(f"stem/layer_{2 * i}", f"stem_conv{i + 1}")
        table += batch_norm(f"stem/layer_{2 * i + 1}", f"stem_norm{i + 1}")
    for stage, letter in zip(range(len(config.depths)), LETTERS, strict=False):
        table += patches(f"stage_{stage}_embedding", f"patch_embed_{letter}.proj", 2)
        table += norm(f"stage_{stage}_embedding_norm", f"patch_embed_{letter}.norm")
        table += weight(f"stage_{stage}_position/table", f"relative_pos_{letter}")
        table += block_rows(f"stage_{stage}_block_{{}}", f"blocks_{letter}.{{}}")
    return table


def block_rows(ours, theirs):
    """The rows of the blocks of one stage."""
    attention, branch = f"{ours}/attention/branch", f"{ours}/feedforward/branch"
    projections, keys = f"{attention}/attention/projections", [f"{theirs}.attn.{x}" for x in "qkv"]
    return [
        *convolution(f"{ours}/position/branch", f"{theirs}.proj", depthwise_kernel()),
        *linear(f"{projections}/query_key_value", *keys),  # if the map is not reduced
        *linear(f"{projections}/query", keys[0]),
        *linear(f"{projections}/key_value", *keys[1:]),
        *linear(f"{attention}/attention/output", f"{theirs}.attn.proj"),
        *convolution(f"{attention}/reduction", f"{theirs}.attn.sr.0", depthwise_kernel()),
        *batch_norm(f"{attention}/reduction/norm", f"{theirs}.attn.sr.1"),
        *norm(f"{ours}/attention/norm", f"{theirs}.norm1"),
        *linear(f"{branch}/layer_0", f"{theirs}.mlp.conv1.0", transform=POINTWISE),
        *batch_norm(f"{branch}/layer_1", f"{theirs}.mlp.conv1.2"),
        *convolution(f"{branch}/layer_2/branch", f"{theirs}.mlp.proj", depthwise_kernel()),
        *batch_norm(f"{branch}/layer_4", f"{theirs}.mlp.proj_bn"),
        *linear(f"{branch}/layer_5", f"{theirs}.mlp.conv2.0", transform=POINTWISE),
        *batch_norm(f"{branch}/layer_6", f"{theirs}.mlp.conv2.1"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.norm2"),
    ]


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    if not arguments.get("qkv_bias", True):
        raise CheckpointError("CMT", "qkv_bias", "True", "False")
    fields = fields_of({key: x for key, x in arguments.items() if key != "qkv_bias"}, FIELDS)
    backbone = CMT(CMTConfig.from_json(fields))
    model = Classifier(backbone, arguments.get("num_classes", 1000))
    read_state(model, weights, rows(backbone.config))
    return model, {"logits": model.output, **as_sequences(backbone.maps)}
