"""CeiT's checkpoints in the authors' format (Yuan et al. 2021)."""

from keras import ops

from keras_tfm.convert.deit import FIRST_OF_ONE
from keras_tfm.convert.keymap import (
    CONVOLVED,
    batch_norm,
    convolution,
    depthwise_kernel,
    linear,
    norm,
    read_state,
    weight,
)
from keras_tfm.convert.variant import attention_rows, embedding_rows
from keras_tfm.heads import Classifier
from keras_tfm.models import CeiT, CeiTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.variant import fields_of, outputs_of

# In the attention of class tokens, the queries come from one token, keys and values from all.
CLASS_ATTENTION = "class_block_0/attention"


def rows(config):
    """The table of weights for a configuration."""
    table = [
        *embedding_rows(config, "i2t.proj"),
        *convolution("stem/layer_0", "i2t.backbone.conv"),
        *batch_norm("stem/layer_0/norm", "i2t.backbone.bn"),
        *weight("layer_position/embedding/embeddings", "pos_layer_embed", FIRST_OF_ONE),
        *attention_rows(),
        *norm("block_{}/feedforward/norm", "blocks.{}.norm2"),
        *linear(f"{CLASS_ATTENTION}/branch/projections/query", "lca.attn.qkv", part=(0, 1, 3)),
        *linear(f"{CLASS_ATTENTION}/branch/projections/key_value", "lca.attn.qkv", part=(1, 3, 3)),
        *linear(f"{CLASS_ATTENTION}/branch/output", "lca.attn.proj"),
        *norm(f"{CLASS_ATTENTION}/norm", "lca.norm1"),
        *linear("class_block_0/feedforward/branch/hidden", "lca.feedforward.fc1"),
        *linear("class_block_0/feedforward/branch/output", "lca.feedforward.fc2"),
        *norm("class_block_0/feedforward/norm", "lca.norm2"),
    ]
    for i, transform in enumerate((CONVOLVED, depthwise_kernel(), CONVOLVED)):
        ours, theirs = f"block_{{}}/feedforward/branch/layer/layer_{i}", "blocks.{}.leff"
        table += convolution(ours, f"{theirs}.conv{i + 1}", transform)
        table += batch_norm(f"{ours}/norm", f"{theirs}.bn{i + 1}")
    return table


def config_of(arguments):
    """Our configuration for their constructor's arguments and its stem's, `hybrid_backbone_args`.

    Raises CheckpointError for a stem of another stride and for feed-forward layers without norms.
    """
    stem = arguments.get("hybrid_backbone_args", {})
    for name, place, value in (("stride", stem, 2), ("leff_with_bn", arguments, True)):
        if place.get(name, value) != value:
            raise CheckpointError("CeIT", name, repr(value), repr(place[name]))
    return CeiTConfig(
        **fields_of(arguments),
        stem_dim=stem.get("out_chans", 64),
        stem_kernel=stem.get("kernel_size", 7),
        kernel_size=arguments.get("leff_local_size", 3),
    )


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    config = config_of(arguments)
    model = Classifier(CeiT(config), arguments["num_classes"])
    read_state(model, weights, rows(config))
    backbone = model.backbone
    sequences = {
        "features/class_attention": backbone.hidden_states["class"][-1],
        "features/norm": backbone.output["sequence_output"],
    }
    tokens = {name: ops.take(x, [0], axis=1) for name, x in sequences.items()}
    return model, {**outputs_of(model), "features/stem": backbone.get_layer("stem").output, **tokens}
