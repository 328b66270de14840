"""MaskFormer of Cheng et al. 2021, "Per-Pixel Classification is Not All You Need for Semantic Segmentation".

An image is cut into a set of segments, each a mask and one class for all of it. A backbone's maps are merged,
the smallest first, into features of pixels (a feature pyramid, Lin et al. 2017); object queries attend to the
last map in DETR's decoder. The dot product of a query's vector with a pixel's features says whether the pixel
is in the query's mask: see `heads.MaskClassifier`. Objects and ground are predicted alike, so that one model
serves semantic, instance and panoptic segmentation. As in the authors' code a Swin's maps are normalised, and
its windows keep their size on small maps. Deviates from it in that it has no Transformer encoder behind the
backbone, which the authors use for COCO with a ResNet.
"""

import dataclasses
from typing import Annotated, Any

from keras import ops

from keras_tfm.configs import Depth, Heads, Multiple, Rate, Size
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.image_positions import SineGridPositionEncoding
from keras_tfm.layers.normalization import GroupNormalization, LayerNormalization
from keras_tfm.layers.patches import flatten_map
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models.base import ConfiguredModel
from keras_tfm.models.detection.backbones import SWINS, TINY, AroundBackbone
from keras_tfm.models.detection.base import EPSILON, LearnedQueries, SineWidth, about_queries, detr_block
from keras_tfm.models.vision.images import Side

NORMALIZED = ("Swin",)  # whose last block's sum is not normalised
NUM_GROUPS = 32  # of features that are normalised together in the pyramid


@dataclasses.dataclass(frozen=True)
class MaskFormerConfig(AroundBackbone):
    """`AroundBackbone` has the fields of the backbone. `dim`, `num_layers`, `num_heads` and
    `intermediate_dim` are the decoder's, `pyramid_dim` is the width of the pyramid's maps, `mask_dim` the
    width of the features of pixels. `dropout` acts on what each sub-layer adds, the other two on attention
    weights and in feed-forward layers.
    """

    image_size: Side | tuple[Side, Side] = 384
    num_queries: LearnedQueries = 100
    dim: SineWidth = 256
    num_layers: Depth = 6
    num_heads: Heads = 8
    intermediate_dim: Size = 2048
    pyramid_dim: Annotated[Size, Multiple(NUM_GROUPS)] = 256
    mask_dim: Size = 256
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    activation: str = "relu"

    @property
    def decoder_sizes(self):
        """(Layers, heads, feed-forward width) of the decoder."""
        return self.num_layers, self.num_heads, self.intermediate_dim


class MaskFormer(ConfiguredModel):
    """Images in, features of pixels and one vector for each object query out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `mask_features` (B, rows, columns, E), of the size
    of the backbone's first map, `decoder_sequence_output` (B, Q, D), and `decoder_outputs` (B, L, Q, D), what
    each decoder block gave, through the one last norm: the last one is `decoder_sequence_output`. `maps` are
    the backbone's.

    >>> model = keras_tfm.models.MaskFormer.from_size("tiny", image_size=32)
    >>> outputs = model({"images": np.zeros((1, 32, 32, 3))})
    >>> outputs["mask_features"].shape, outputs["decoder_sequence_output"].shape
    (TensorShape([1, 8, 8, 64]), TensorShape([1, 16, 128]))
    """

    config_class = MaskFormerConfig

    def __init__(self, config: MaskFormerConfig, name: str = "mask_former", **kwargs: Any) -> None:
        backbone = config.new_backbone()
        maps = normalized_maps(config, backbone)
        features = feature_pyramid(maps, config.pyramid_dim)
        features = Convolution(config.mask_dim, 3, name="mask_features")(features)

        x = maps[-1]
        if x.shape[-1] != config.dim:
            x = Convolution(config.dim, 1, name="decoder_projection")(x)
        position = SineGridPositionEncoding(normalize=True, name="decoder_position")(ops.zeros_like(x))
        context, position = flatten_map(x), flatten_map(position)  # (B, N, D)
        queries = LearnedVectors(config.num_queries, name="decoder_queries")(context)
        decoder = [detr_block(config, "decoder", i) for i in range(config.num_layers)]
        tensors = about_queries(queries, {"context": context, "context_position": position})
        trace = config.trace_of(backbone)
        trace.run("decoder", decoder, ops.zeros_like(queries), **tensors)
        norm = LayerNormalization(EPSILON, name="decoder_norm")
        states = norm(ops.stack(trace.hidden_states["decoder"][1:], axis=1))  # (B, L, Q, D)
        outputs = {
            "mask_features": features,
            "decoder_sequence_output": states[:, -1],
            "decoder_outputs": states,
        }
        super().__init__(config, backbone.input, outputs, trace, name=name, **kwargs)
        self.maps = backbone.maps


def normalized_maps(config, backbone):
    """The maps of the `backbone`, the largest first, normalised where its blocks leave that open."""
    maps = list(backbone.maps)
    if config.backbone in NORMALIZED:
        maps = [LayerNormalization(EPSILON, name=f"map_norm_{i}")(x) for i, x in enumerate(maps)]
    return maps


def feature_pyramid(maps, dim):
    """The `maps`, the largest first, as one of the first's size: (B, rows, columns, `dim`)."""
    return merged(normalized(dim, 3, "relu", name="pyramid_stem")(maps[-1]), maps[:-1], dim)


def merged(x, maps, dim, resize=resize_nearest):
    """`x` (B, rows, columns, `dim`) in the size of the first of the `maps`, which are all larger than it.

    Again and again it is enlarged to the next larger map, the last one first; that map is projected and
    added, and the sum is convolved.
    """
    for i in reversed(range(len(maps))):
        side = normalized(dim, 1, name=f"pyramid_side_{i}")(maps[i])
        x = resize(x, side.shape[1:3]) + side
        x = normalized(dim, 3, "relu", name=f"pyramid_block_{i}")(x)
    return x


def normalized(dim, size, activation=None, use_bias=None, name=None):
    """A `Convolution` whose features are normalised in groups."""
    norm = GroupNormalization(NUM_GROUPS, epsilon=EPSILON)
    return Convolution(dim, size, norm=norm, activation=activation, use_bias=use_bias, name=name)


# Cheng et al. 2021: MaskFormer of 41 M (R50), 60 M (R101), 42 M (Swin-T), 63 M (S), 102 M (B) and 212 M (L)
# parameters. tiny is this package's own, for images of some 96 x 96.
MaskFormer.sizes = {
    "tiny": MaskFormerConfig(
        **TINY,
        dim=128,
        num_layers=3,
        num_heads=4,
        intermediate_dim=256,
        pyramid_dim=64,
        mask_dim=64,
        dropout=0.0,
    ),
    "50": MaskFormerConfig(512),
    "101": MaskFormerConfig(512, backbone_config={"depths": (3, 4, 23, 3)}),
    **{
        name: MaskFormerConfig(512 if name in ("T", "S") else 640, backbone="Swin", backbone_config=swin)
        for name, swin in SWINS.items()
    },
}
