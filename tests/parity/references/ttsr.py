"""TTSR's network and its transfer of textures as the authors' code has them."""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.keymap import AS_IS, CONVOLVED, Row, convolution, read_state, reordered
from keras_tfm.models import TTSRConfig
from keras_tfm.models.pictures.ttsr import TextureTransfer, large_images
from tests.parity.references.state import check_arguments, rows_before_channels

LEVELS = (3, 2, 1)


def rows(config):
    """The table of weights: theirs numbers the maps at 1, 2 and 4 times the size from 1."""
    table = [*convolution("first", "SFE.conv_head"), *blocks("features", "SFE.RBs", "SFE.conv_tail")]
    for stage in range(3):
        n = stage + 1
        table += convolution(f"stage_{stage}_texture", f"conv{n}{n}_head")
        for i in range(n):
            table += blocks(f"stage_{stage}_scale_{i}", f"RB{n}{i + 1}", f"conv{n}{i + 1}_tail")
        if stage:
            order = rows_before_channels(config.dim, 2)
            ours, theirs = f"stage_{stage}_enlargement/convolution", f"conv{stage}{n}"
            table.append(Row(f"{ours}/kernel", (f"{theirs}.weight",), reordered(CONVOLVED, order)))
            table.append(Row(f"{ours}/bias", (f"{theirs}.bias",), reordered(AS_IS, order)))
            table += exchange(f"stage_{stage}_exchange", "ex" + "123"[:n], n, range(n), "conv_merge{}")
    table += exchange("merging", "merge_tail", 3, [2], "conv_merge")
    table += [
        *convolution("last_features", "merge_tail.conv_tail1"),
        *convolution("colour", "merge_tail.conv_tail2"),
    ]
    return table


def blocks(ours, theirs, tail):
    """The rows of residual blocks and the convolution after them."""
    table = convolution(f"{ours}/after", tail)
    for i in range(2):
        table += convolution(f"{ours}/blocks/layer_{{}}/branch/layer_{i}", f"{theirs}.{{}}.conv{i + 1}")
    return table


def exchange(ours, theirs, count, targets, merging):
    """The rows of an exchange among `count` maps."""
    table = []
    for target in targets:
        table += convolution(f"{ours}/to_{target}", f"{theirs}.{merging.format(target + 1)}")
        for source in set(range(count)) - {target}:
            steps, way = max(1, source - target), f"{theirs}.conv{source + 1}{target + 1}"
            for step in range(steps):
                name = f"{way}_{step + 1}" if steps > 1 else way
                table += convolution(f"{ours}/from_{source}_to_{target}/layer_{step}", name)
    return table


def read(arguments, weights, shapes):
    """The network for their arguments and weights, and its outputs by their names."""
    check_arguments(arguments, {"num_res_blocks", "n_feats", "res_scale"}, "TTSR")
    widths = tuple(shapes[f"T_lv{level}"][-1] for level in (1, 2, 3))
    size = shapes["images"][1:3]
    sizes = {"image_size": size, "reference_size": tuple(4 * side for side in size), "texture_dims": widths}
    config = TTSRConfig(num_blocks=tuple(arguments["num_res_blocks"]), dim=arguments["n_feats"], **sizes)
    names = ("images", "S", *(f"T_lv{level}" for level in (1, 2, 3)))
    inputs = {name: keras.Input(shapes[name][1:], name=name) for name in names}
    images, similarity, *textures = inputs.values()
    model = keras.Model(inputs, large_images(config, images, similarity, textures))
    read_state(model, weights, rows(config))
    outputs = {"output": model.output, "features/tail_before_clip": model.get_layer("colour").output}
    features = model.get_layer("first").output + model.get_layer("features").output
    return model, outputs | {"features/sfe": features}


def read_transfer(arguments, arrays):
    """The names of the inputs among the `arrays`, and what the transfer makes of them."""
    names = ("lrsr_lv3", "refsr_lv3", *(f"ref_lv{level}" for level in (1, 2, 3)))
    queries, keys, *references = (ops.convert_to_tensor(arrays[name]) for name in names)
    outputs = TextureTransfer()(queries, keys, references)
    return {*names}, dict(zip(("S", "T_lv1", "T_lv2", "T_lv3"), map(np.asarray, outputs), strict=True))
