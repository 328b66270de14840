"""TTSR (Yang et al. 2020, "Learning Texture Transformer Network for Image Super-Resolution"): images of four
times the size, with the textures of a reference image.

    reference, images -> features at three levels -> for each cell of the image the reference's most similar
                                                     cell, its textures T and the similarity S
    images -> x1 -> + T of level 3 -> x2 -> + T of level 2 -> x4 -> + T of level 1 -> images

The maps of all sizes so far exchange their features after each enlargement. The extractor of features is the
beginning of VGG-19, from whose published weights its authors train it on. Architecture only: no weights are
read.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Config, Size
from keras_tfm.layers.base import Layer
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.normalization import unit
from keras_tfm.layers.patches import (
    PixelShuffle,
    combine_patches,
    extract_patches,
    flatten_map,
    height_and_width,
)
from keras_tfm.layers.pooling import MaxPooling
from keras_tfm.layers.resizing import resize_bicubic
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.pictures.restoration import residual_of
from keras_tfm.models.vision.images import Side

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours, which VGG reads
LEVELS = 3


@dataclasses.dataclass(frozen=True)
class TTSRConfig(Config):
    """The sizes of a `TTSR`.

    Args:
        image_size: the side of the small images or their (height, width).
        reference_size: the same of the references, multiples of 4.
        num_blocks: how many residual blocks there are before the first texture, and at 1, 2 and 4 times the
            size.
        dim: the channels of the blocks' maps.
        texture_dims: the channels of the extractor's maps, from the largest map to the smallest.
    """

    image_size: Side | tuple[Side, Side] = 40
    reference_size: Side | tuple[Side, Side] = 160
    num_blocks: tuple[Size, Size, Size, Size] = (16, 16, 8, 4)
    dim: Size = 64
    texture_dims: tuple[Size, Size, Size] = (64, 128, 256)

    def __post_init__(self):
        super().__post_init__()
        if any(side % 4 for side in height_and_width(self.reference_size, "reference_size")):
            raise ValueError(f"`reference_size` must be multiples of 4; it is {self.reference_size}.")


class TTSR(ConfiguredModel):
    """Small images and large references in, large images out.

    Inputs: `images` (B, H, W, 3) and `references` (B, H', W', 3), floating-point, from -1 to 1. Outputs:
    `images` (B, 4 H, 4 W, 3), from -1 to 1, and `similarity` (B, H, W, 1), the cosine of each cell and the
    reference's most similar one.

    >>> model = keras_tfm.models.TTSR.from_size("tiny")
    >>> pictures = {"images": np.zeros((1, 8, 8, 3)), "references": np.zeros((1, 32, 32, 3))}
    >>> model(pictures)["images"].shape
    TensorShape([1, 32, 32, 3])
    """

    config_class = TTSRConfig

    def __init__(self, config: TTSRConfig, name: str = "ttsr", **kwargs: Any) -> None:
        size, large = (height_and_width(x) for x in (config.image_size, config.reference_size))
        images = keras.Input((*size, 3), name="images")
        references = keras.Input((*large, 3), name="references")
        extractor = TextureExtractor(config.texture_dims, name="extractor")
        queries, keys = queries_of(extractor, images), keys_of(extractor, references)
        similarity, *textures = TextureTransfer(name="transfer")(queries, keys, extractor(references))
        outputs = {"images": large_images(config, images, similarity, textures), "similarity": similarity}
        inputs = {"images": images, "references": references}
        super().__init__(config, inputs, outputs, Trace(), name=name, **kwargs)

    def queries(self, images: Any) -> Any:
        """What the cells of images (B, H, W, 3), from -1 to 1, are compared by: (B, H, W, D)."""
        return queries_of(self.get_layer("extractor"), images)

    def keys(self, references: Any) -> Any:
        """The same of references (B, H', W', 3): (B, H' / 4, W' / 4, D)."""
        return keys_of(self.get_layer("extractor"), references)

    def similarity(self, queries: Any, keys: Any) -> Any:
        """How similar images with these `queries` are to references with these `keys`: the mean of the
        output `similarity`, (B,).
        """
        (similarity,) = self.get_layer("transfer")(queries, keys, [])
        return ops.mean(similarity, axis=(1, 2, 3))


def queries_of(extractor, images):
    """The `extractor`'s smallest map of `images`, enlarged four times."""
    enlarged = resize_bicubic(images, [4 * side for side in images.shape[1:3]], smooths=True)
    return extractor(enlarged)[-1]


def keys_of(extractor, references):
    """The `extractor`'s smallest map of `references` without the details that images lack, so that like is
    compared with like.
    """
    size = references.shape[1:3]
    small = resize_bicubic(references, [side // 4 for side in size], smooths=True)
    return extractor(resize_bicubic(small, size, smooths=True))[-1]


def beyond_bicubic(model: TTSR, images: Any, references: Any) -> Any:
    """`images` (B, H, W, 3) enlarged bicubically, plus what the model answers to them and to `references` (B,
    H', W', 3), all from 0 to 1: (B, 4 H, 4 W, 3). So it learns the difference alone, as in
    `restoration.beyond_bicubic`; the paper's learns the image.
    """
    y = model({"images": 2 * images - 1, "references": 2 * references - 1})["images"]
    enlarged = resize_bicubic(images, [4 * side for side in images.shape[1:3]], smooths=True)
    return enlarged + ops.cast(y, enlarged.dtype)


class TextureExtractor(Layer):
    """The first maps of three stages of VGG-19 (relu1_1, relu2_1, relu3_1), of these widths `dims`: images
    (B, H, W, 3), from -1 to 1 -> [(B, H, W, 64), (B, H / 2, W / 2, 128), (B, H / 4, W / 4, 256)].
    """

    def __init__(self, dims: tuple[int, int, int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dims = tuple(dims)

    def build(self, images_shape):
        first, second, third = (
            [Convolution(dim, activation="relu", name=f"convolution_{2 * i + j}") for j in range(2)]
            for i, dim in enumerate(self.dims)
        )
        pools = [MaxPooling(2, 2, name=f"pooling_{i}") for i in range(2)]
        self.levels = [
            Chain(first[:1], name="level_0"),
            Chain([first[1], pools[0], second[0]], name="level_1"),
            Chain([second[1], pools[1], third[0]], name="level_2"),
        ]
        for level in self.levels:
            level.build(images_shape)
            images_shape = level.compute_output_shape(images_shape)

    def call(self, images):
        """The three maps, the largest one first."""
        mean, deviation = (ops.convert_to_tensor(x, images.dtype) for x in (MEAN, DEVIATION))
        x, maps = ((images + 1) / 2 - mean) / deviation, []
        for level in self.levels:
            x = level(x)
            maps.append(x)
        return maps

    def compute_output_shape(self, images_shape):
        shapes = []
        for level in self.levels:
            images_shape = level.compute_output_shape(images_shape)
            shapes.append(images_shape)
        return shapes


class TextureTransfer(Layer):
    """Hard attention: each cell takes the textures of the reference's most similar cell (section 3.1).

    `queries` (B, h, w, D) and `keys` (B, h', w', D) are compared by the cosine of their neighbourhoods of 3 x
    3 cells. The maps of the reference, of which the sides are 4, 2 and 1 times as long as the keys', give the
    textures of the chosen cells, averaged where neighbourhoods overlap: similarity (B, h, w, 1), then maps
    with 4, 2 and 1 times the sides of the queries.
    """

    def call(self, queries, keys, references):
        """[similarity, *textures]; `references` are a list of maps."""
        size, count = tuple(queries.shape[1:3]), 9
        compared = [unit(flatten_map(neighbourhoods(x))) for x in (queries, keys)]
        relevance = ops.einsum("bnd,bsd->bns", *compared)  # (B, N, S)
        similarity = ops.cast(ops.max(relevance, axis=-1), self.compute_dtype)
        chosen = ops.argmax(relevance, axis=-1)[..., None]  # (B, N, 1)
        textures = []
        for x in references:
            side = x.shape[1] // keys.shape[1]
            cells = ops.reshape(extract_patches(x, side), (-1, *keys.shape[1:3], side**2 * x.shape[-1]))
            patches = ops.take_along_axis(flatten_map(neighbourhoods(cells)), chosen, axis=1)  # (B, N, 9 K)
            patches = ops.reshape(patches, (-1, *size, count * cells.shape[-1]))
            sums = flatten_map(overlapped(patches))  # (B, N, K)
            height, width = size
            textures.append(combine_patches(sums, side, (side * height, side * width)) / count)
        return [ops.reshape(similarity, (-1, *size, 1)), *textures]

    def compute_output_shape(self, queries_shape, keys_shape, references_shape):
        batch_size, height, width, _ = queries_shape
        factors = [shape[1] // keys_shape[1] for shape in references_shape]
        pairs = zip(factors, references_shape, strict=True)
        textures = [(batch_size, n * height, n * width, shape[-1]) for n, shape in pairs]
        return [(batch_size, height, width, 1), *textures]


def neighbourhoods(x):
    """Each cell's vector and its eight neighbours', zeros beyond the ends: (B, h, w, D) -> (B, h, w, 9 D)."""
    _, height, width, _ = x.shape
    x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    parts = [x[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return ops.concatenate(parts, axis=-1)


def overlapped(x):
    """The sums of what `neighbourhoods` gave to each cell: (B, h, w, 9 D) -> (B, h, w, D)."""
    _, height, width, _ = x.shape
    parts = ops.split(ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), 9, axis=-1)
    places = [(i, j) for i in range(3) for j in range(3)]
    return sum(
        part[:, 2 - i : 2 - i + height, 2 - j : 2 - j + width]
        for part, (i, j) in zip(parts, places, strict=True)
    )


def large_images(config, images, similarity, textures):
    """The graph from `images` (B, H, W, 3) to images (B, 4 H, 4 W, 3) (section 3.2), by the `similarity` (B,
    H, W, 1) and the `textures`, the largest map first.
    """
    x = Convolution(config.dim, activation="relu", name="first")(images)
    maps = [x + residual_blocks(config, config.num_blocks[0], "features")(x)]
    for stage, texture in enumerate(reversed(textures)):
        if stage:
            larger = Convolution(4 * config.dim, name=f"stage_{stage}_enlargement")(maps[-1])
            maps.append(ops.relu(PixelShuffle(2, name=f"stage_{stage}_shuffle")(larger)))
        maps[-1] = joined(config, maps[-1], texture, similarity, stage)
        changes = Exchange(name=f"stage_{stage}_exchange")(maps) if stage else maps
        for i, x in enumerate(changes):
            name = f"stage_{stage}_scale_{i}"
            maps[i] = maps[i] + residual_blocks(config, config.num_blocks[stage + 1], name)(x)
    x = Exchange(merges=True, name="merging")(maps)
    x = Convolution(config.dim // 2, name="last_features")(x)
    return ops.clip(Convolution(3, 1, name="colour")(x), -1.0, 1.0)


def joined(config, x, texture, similarity, stage):
    """The map `x` plus a convolution of it and its `texture`, as far as the reference is similar."""
    change = Convolution(config.dim, name=f"stage_{stage}_texture")(ops.concatenate([x, texture], axis=-1))
    return x + change * resize_bicubic(similarity, x.shape[1:3])


def residual_blocks(config, count, name):
    """Residual blocks of two convolutions, and a convolution after them."""
    blocks = [residual_of(config.dim) for _ in range(count)]
    return Chain([Chain(blocks, name="blocks"), Convolution(config.dim, name="after")], name=name)


class Exchange(Layer):
    """Maps (B, n h, n w, D) of n = 1, 2, 4 exchange their features ("cross-scale feature integration").

    Each map is joined by all others, resized: smaller ones bicubically, larger ones by convolutions of stride
    2. With `merges` only the largest map comes out.
    """

    def __init__(self, merges: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.merges = merges

    def build(self, maps_shape):
        shapes = list(maps_shape)
        dim, count = shapes[0][-1], len(shapes)
        self.targets = [count - 1] if self.merges else list(range(count))
        self.ways = {}
        for target in self.targets:
            for source in range(count):
                if source != target:
                    # One convolution of 1 x 1 after enlarging, or one of stride 2 for each halving.
                    size, stride = (1, 1) if source < target else (3, 2)
                    steps = range(max(1, source - target))
                    convolutions = [Convolution(dim, size, stride, activation="relu") for _ in steps]
                    way = Chain(convolutions, name=f"from_{source}_to_{target}")
                    way.build(shapes[target] if source < target else shapes[source])
                    self.ways[f"{source} {target}"] = way
        self.merging = [Convolution(dim, activation="relu", name=f"to_{target}") for target in self.targets]
        for target, layer in zip(self.targets, self.merging, strict=True):
            layer.build((*shapes[target][:-1], count * dim))

    def call(self, maps):
        """The joined maps, the smallest one first, or the largest alone."""
        merged = [
            layer(ops.concatenate([maps[target], *self._others(maps, target)], axis=-1))
            for target, layer in zip(self.targets, self.merging, strict=True)
        ]
        return merged[0] if self.merges else merged

    def _others(self, maps, target):
        """The other maps, in the size of the map `target`."""
        for source, x in enumerate(maps):
            if source != target:
                x = resize_bicubic(x, maps[target].shape[1:3]) if source < target else x
                yield self.ways[f"{source} {target}"](x)

    def compute_output_shape(self, maps_shape):
        return tuple(maps_shape[-1]) if self.merges else [tuple(shape) for shape in maps_shape]


# Yang et al. 2020, section 4.1, and the authors' code. small and tiny are this package's own.
TTSR.sizes = {
    "base": TTSRConfig(),
    "small": TTSRConfig(16, 64, (2, 2, 1, 1), 16, (16, 24, 32)),
    "tiny": TTSRConfig(8, 32, (1, 1, 1, 1), 8, (4, 6, 8)),
}
