"""CAT's checkpoints in the format of the authors' code (Lin et al. 2021)."""

from keras_tfm.convert.keymap import linear, norm, patches, read_state, weight
from keras_tfm.convert.swin import merging
from keras_tfm.heads import Classifier
from keras_tfm.models import CAT, CATConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import as_sequences, fields_of

FIELDS = {
    "img_size": "image_size",
    "patch_emb_size": "patch_size",
    "in_chans": "num_channels",
    "depths": "depths",
    "embed_dim": "dim",
    "num_heads": "num_heads",
    "patch_size": "window",
    "mlp_ratio": "mlp_ratio",
    "drop_rate": "dropout",
    "attn_drop_rate": "attention_dropout",
    "drop_path_rate": "stochastic_depth",
}
FIXED = {"qkv_bias": True, "ape": False, "patch_norm": True}  # other values are not supported
KINDS = ("pre_ipsa", "cpsa", "post_ipsa")  # the kinds of three consecutive blocks


def rows(config):
    """The table of a configuration; in theirs a merging belongs to the stage before it."""
    table = [
        *patches("patch_embedding", "patch_embed.proj", config.patch_size),
        *norm("embedding_norm", "patch_embed.norm"),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
    ]
    for stage, depth in enumerate(config.depths):
        if stage:
            table += merging(f"stage_{stage}_merging", f"layers.{stage - 1}.downsample")
        for i in range(depth):
            for place, kind in enumerate(KINDS):
                table += block_rows(
                    f"stage_{stage}_block_{3 * i + place}", f"layers.{stage}.{kind}_blocks.{i}"
                )
    return table


def block_rows(ours, theirs):
    """The rows of one block."""
    attention = f"{ours}/attention/branch/attention"
    return [
        *linear(f"{attention}/projections/query_key_value", f"{theirs}.attn.qkv"),
        *weight(f"{attention}/position/table", f"{theirs}.attn.relative_position_bias_table"),
        *linear(f"{attention}/output", f"{theirs}.attn.proj"),
        *norm(f"{ours}/attention/norm", f"{theirs}.norm1"),
        *linear(f"{ours}/feedforward/branch/hidden", f"{theirs}.mlp.fc1"),
        *linear(f"{ours}/feedforward/branch/output", f"{theirs}.mlp.fc2"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.norm2"),
    ]


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    for name, value in FIXED.items():
        if arguments.get(name, value) != value:
            raise CheckpointError("CAT", name, f"{value}", f"{arguments[name]}")
    fields = fields_of({key: x for key, x in arguments.items() if key not in FIXED}, FIELDS)
    backbone = CAT(CATConfig.from_json(fields))
    model = Classifier(backbone, arguments.get("num_classes", 1000))
    read_state(model, weights, rows(backbone.config))
    merged = [backbone.get_layer(f"stage_{i}_merging").output for i in range(1, len(backbone.maps))]
    return model, {"logits": model.output, **as_sequences([*merged, backbone.maps[-1]])}
