"""GLiT's checkpoints in the format of the authors' code (Chen et al. 2021)."""

from keras import ops

from keras_tfm.convert.keymap import Transform, batch_norm, linear, norm, patches, read_state, weight
from keras_tfm.heads import Classifier
from keras_tfm.models import GLiT, GLiTConfig

FIRST = Transform(lambda array: array[0], lambda array, count: [array[None]])  # (1, N, D) <-> (N, D)
# A torch.nn.Conv1d of kernel 1 is a linear layer of (out, in, 1).
POINT = Transform(lambda array: array[..., 0].T, lambda array, count: [array.T[..., None]])
# A depthwise torch.nn.Conv1d keeps (channels, 1, size), ours (size, 1, channels, 1).
DEPTHWISE = Transform(
    lambda array: array.transpose(2, 1, 0)[..., None], lambda array, count: [array[..., 0].transpose(2, 1, 0)]
)


def rows(config):
    """The table of weights for a configuration."""
    table = [
        *patches("patch_embedding", "patch_embed.proj", config.patch_size),
        *weight("class_token/embedding", "cls_token"),
        *weight("position/embedding/embeddings", "pos_embed", FIRST),
        *norm("block_{}/attention/norm", "blocks.{}.0.norm1"),
        *norm("block_{}/feedforward/norm", "blocks.{}.0.norm2"),
        *linear("block_{}/feedforward/branch/hidden", "blocks.{}.0.mlp.fc1"),
        *linear("block_{}/feedforward/branch/output", "blocks.{}.0.mlp.fc2"),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
    ]
    for i, num_heads in enumerate(config.num_attention_heads):
        ours, theirs = f"block_{i}/attention/branch", f"blocks.{i}.0.attn"
        is_mixed = 0 < num_heads < config.num_heads
        attention, convolution = (f"{ours}/{part}" if is_mixed else ours for part in ("first", "second"))
        if num_heads:
            table += linear(f"{attention}/projections/query_key_value", f"{theirs}.qkv")
            table += linear(f"{attention}/output", f"{theirs}.proj")
        if num_heads < config.num_heads:
            table += linear(f"{convolution}/gated", f"{theirs}.net.1", transform=POINT)
            depthwise = f"{convolution}/depthwise"
            table += weight(f"{depthwise}/convolution/kernel", f"{theirs}.net.3.conv.weight", DEPTHWISE)
            table += weight(f"{depthwise}/convolution/bias", f"{theirs}.net.3.conv.bias")
            table += batch_norm(f"{depthwise}/norm", f"{theirs}.net.4")
            table += linear(f"{convolution}/output", f"{theirs}.net.6", transform=POINT)
    return table


def config_of(arguments):
    """Our configuration for the authors' arguments, in which a layer is two numbers.

    `base_arch` has the number of thirds of the heads that attend. `arch` has indices of searched pairs:
    (kernel size, expansion) for a layer without attention, else (expansion, expansion of the feed-forward
    layer).
    """
    layers: list[tuple] = []
    for thirds, choice in zip(arguments["base_arch"], arguments["arch"], strict=True):
        first, second = divmod(choice, 3)
        if thirds == 0:
            layers.append((0, (1, 2, 4)[second], (17, 31, 45)[first], arguments["mlp_ratio"]))
        else:
            expansion = ((0.5, 1, 2) if thirds == 3 else (1, 2, 4))[first]
            layers.append((thirds * arguments["num_heads"] // 3, expansion, 31, (2, 4, 6)[second]))
    heads, expansions, kernel_sizes, mlp_ratios = zip(*layers, strict=True)
    return GLiTConfig(
        image_size=arguments["img_size"],
        patch_size=arguments["patch_size"],
        dim=arguments["embed_dim"],
        num_heads=arguments["num_heads"],
        num_attention_heads=heads,
        expansions=expansions,
        kernel_sizes=kernel_sizes,
        mlp_ratios=mlp_ratios,
    )


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs."""
    config = config_of(arguments)
    backbone = GLiT(config)
    model = Classifier(backbone, arguments["num_classes"])
    read_state(model, weights, rows(config))
    patch_map = backbone.get_layer("patch_embedding").output
    num_patches = patch_map.shape[1] * patch_map.shape[2]
    outputs = {
        "logits": model.output,
        "features/embed": ops.reshape(patch_map, (-1, num_patches, config.dim)),
        "features/norm": backbone.output["sequence_output"],
    }
    states = backbone.hidden_states["encoder"][1:]
    return model, outputs | {f"features/block_{i}": x for i, x in enumerate(states)}
