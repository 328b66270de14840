"""The rows that checkpoints of DeiT's variants share: timm's names of the weights of a ViT in 2021."""

from keras import ops

from keras_tfm.convert.deit import FIRST_OF_ONE
from keras_tfm.convert.keymap import Transform, linear, norm, patches, weight
from keras_tfm.convert.state import read_state
from keras_tfm.heads import Classifier

# The bias of mixed heads: theirs is (H,), ours (H, 1, 1).
OF_HEADS = Transform(lambda x: x[:, None, None], lambda x, _: [x[:, 0, 0]])


def embedding_rows(config, patches_key="patch_embed.proj"):
    """The rows of patches, class token if there is one, positions, last norm and classifier."""
    return [
        *patches("patch_embedding", patches_key, config.patch_size),
        *weight("tokens/embedding", "cls_token"),
        *weight("position/embedding/embeddings", "pos_embed", FIRST_OF_ONE),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
    ]


def attention_rows(ours="block_{}/attention", branch="branch", theirs="blocks.{}"):
    """The rows of a block's attention and its norm."""
    return [
        *linear(f"{ours}/{branch}/projections/query_key_value", f"{theirs}.attn.qkv"),
        *linear(f"{ours}/{branch}/output", f"{theirs}.attn.proj"),
        *norm(f"{ours}/norm", f"{theirs}.norm1"),
    ]


def feedforward_rows(ours="block_{}/feedforward", branch="branch", theirs="blocks.{}"):
    """The rows of a block's feed-forward layer and its norm."""
    return [
        *linear(f"{ours}/{branch}/hidden", f"{theirs}.mlp.fc1"),
        *linear(f"{ours}/{branch}/output", f"{theirs}.mlp.fc2"),
        *norm(f"{ours}/norm", f"{theirs}.norm2"),
    ]


def fields_of(arguments):
    """The given fields of a `VariantConfig` that all their constructors name alike."""
    fields = {name: arguments[theirs] for name, theirs in FIELDS.items() if theirs in arguments}
    dim = arguments["embed_dim"]
    return {**fields, "intermediate_dim": int(arguments.get("mlp_ratio", 4) * dim)}


FIELDS = {
    "image_size": "img_size",
    "patch_size": "patch_size",
    "num_channels": "in_chans",
    "num_layers": "depth",
    "dim": "embed_dim",
    "num_heads": "num_heads",
}


def read_as(model_class, config, num_classes, weights, rows):
    """A classifier of `config` with their `weights`, and its outputs by the names of the stored numbers."""
    model = Classifier(model_class(config), num_classes)
    read_state(model, weights, rows)
    return model, outputs_of(model)


def outputs_of(model):
    """The outputs of a classifier by the names of the stored numbers: logits, embed, block_0, ..., norm."""
    backbone = model.backbone
    states = backbone.hidden_states["encoder"]
    patches = backbone.get_layer("patch_embedding").output
    rows, columns, dim = patches.shape[1:]
    return {
        "logits": model.output,
        "features/embed": ops.reshape(patches, (-1, rows * columns, dim)),
        "features/norm": backbone.output["sequence_output"],
        **{f"features/block_{i}": state for i, state in enumerate(states[1:])},
    }
