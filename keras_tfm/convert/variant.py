"""The rows that checkpoints of DeiT's variants share: timm's names of the weights of a ViT in 2021."""

from keras_tfm.convert.deit import FIRST_OF_ONE
from keras_tfm.convert.keymap import Transform, linear, norm, patches, weight

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
