"""RT-DETR of Zhao et al. 2023, "DETRs Beat YOLOs on Real-time Object Detection": few costly layers, and
queries that begin as the cells which most likely are of an object.

    maps of the backbone --> one width --> encoder, on the last map --> fusion, down --> fusion, up --+
                                                                                                      |
    Q vectors, each with a box <-- decoder, blocks correct boxes <-- the Q best cells, each a box <---+

The encoder attends within the smallest map alone (the paper's AIFI); convolutions join the maps, from the
smallest to the largest and back (its CCFM). A cell's score is its likeliest class's, so the model knows the
number of classes. Deviates from the authors' code in that padding is hidden, and boxes are parts of the image
without it, where theirs stretches images and has no padding. In training the decoder also gets the true
objects, with noise, and corrects them (denoising.py).
"""

import dataclasses
import math
from typing import Annotated, Any, Literal

import keras
from keras import ops

from keras_tfm.configs import Between, Count, Depth, Natural, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.bottleneck import ShortcutBlock
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.grid import centres_of, shares_of
from keras_tfm.layers.image_positions import GridSines
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import flatten_map
from keras_tfm.layers.positioned_block import PositionedAttention
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models.base import Trace
from keras_tfm.models.detection.backbones import BACKBONES, TINY, KnowsClasses
from keras_tfm.models.detection.base import (
    EPSILON,
    Queries,
    SetDetector,
    SetDetectorConfig,
    last_maps,
    start_of,
)
from keras_tfm.models.detection.denoising import DenoisingMask, DenoisingQueries
from keras_tfm.models.detection.refinement import (
    anchors_of,
    best_of,
    box_head,
    box_heads,
    corrected,
    decoder_block,
    flat_cells,
    refined,
)
from keras_tfm.models.vision.images import Side

NUM_REPEATED = 3  # blocks in a fusion


@dataclasses.dataclass(frozen=True)
class RTDETRConfig(SetDetectorConfig):
    """`SetDetectorConfig`, with the last `num_maps` maps of the backbone. `num_classes` counts the classes
    that the cells' scores are for.

    The maps are `encoder_dim` wide up to the decoder, by default `dim`; within a fusion they are `expansion`
    times as wide. A head of the decoder looks at `num_decoder_points` points of each map. `learns_queries`
    lets the decoder begin with learned vectors instead of the chosen cells' own. Some `num_denoising`
    queries learn to correct an object in training, with `label_noise` and `box_noise` as `DenoisingQueries`
    has them. `activation` is the decoder's, `encoder_activation` the encoder's, `fusion_activation` the
    convolutions'.
    """

    image_size: Side | tuple[Side, Side] = 640
    backbone: Literal[tuple(BACKBONES)] = "ResNetVD"  # type: ignore[valid-type]
    num_queries: Queries = 300
    num_layers: Depth = 1
    num_decoder_layers: Depth | None = 6
    intermediate_dim: Size = 1024
    dropout: Rate = 0.0
    num_classes: Size = 80
    num_maps: Count = 3
    encoder_dim: Size | None = None
    expansion: Annotated[float, Between(0, 16, is_above=True)] = 1.0
    num_decoder_points: Size = 4
    learns_queries: bool = False
    num_denoising: Natural = 100
    label_noise: Annotated[float, Between(0, 1)] = 0.5
    box_noise: Annotated[float, Between(0, 1)] = 1.0
    encoder_activation: str = "gelu"
    fusion_activation: str = "silu"

    def __post_init__(self):
        super().__post_init__()
        if self.encoder_width % 4 or self.encoder_width % self.num_heads:
            raise ValueError(
                f"`encoder_dim` must be a multiple of four, for the sines, and of `num_heads`, "
                f"{self.num_heads}; it is {self.encoder_width}."
            )
        if self.fusion_width < 1:
            raise ValueError(f"`expansion` must leave a width of at least 1; it is {self.expansion}.")

    @property
    def encoder_width(self):
        """The width of maps up to the decoder."""
        return self.encoder_dim or self.dim

    @property
    def fusion_width(self):
        """The width of maps within a fusion."""
        return int(self.encoder_width * self.expansion)


class RTDETR(KnowsClasses, SetDetector):
    """Images in, one vector for each object query out, and its box.

    Inputs as of `SetDetector`. Outputs: `encoder_sequence_output` (B, N, D), the cells of all maps, the
    finest first; `decoder_sequence_output` (B, Q, D); `decoder_outputs` (B, L, Q, D), of all decoder blocks,
    and `decoder_boxes` (B, L, Q, 4), boxes around centres; `proposals` (B, Q, `num_classes` + 4), the logits
    and the box of each chosen cell.

    >>> model = keras_tfm.models.RTDETR.from_size("tiny", image_size=32, num_classes=3)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["proposals"].shape
    TensorShape([1, 16, 7])
    """

    config_class = RTDETRConfig

    def __init__(self, config: RTDETRConfig, name: str = "rt_detr", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        maps = last_maps(backbone.maps, config.num_maps)
        maps = _projected(maps, config.encoder_width, "encoder_projection")
        grids = tuple(tuple(x.shape[1:3]) for x in maps)
        masks = [resize_nearest(pixel_mask, grid) for grid in grids]
        cells = flat_cells(masks)  # (B, N)
        shares = shares_of(masks)

        encoder = [_encoder_block(config, i) for i in range(config.num_layers)]
        position = flatten_map(CellSines(name="encoder_position")(ops.zeros_like(maps[-1])))
        tensors = {"mask": flat_cells(masks[-1:]), "position": position}
        encoded = trace.run("encoder", encoder, flatten_map(maps[-1]), attention=tensors)
        maps[-1] = ops.reshape(encoded, (-1, *maps[-1].shape[1:]))
        levels = _projected(_fused(config, maps), config.dim, "decoder_projection")
        x = ops.concatenate([flatten_map(level) for level in levels], axis=1)  # (B, N, D)

        queries, references, proposals = _proposals(config, x, cells, grids, centres_of(grids, shares))
        decoder = [decoder_block(config, grids, i) for i in range(config.decoder_sizes[0])]
        position_of = Chain([Dense(2 * config.dim, "relu"), Dense(config.dim)], name="decoder_position")
        if config.num_denoising:
            noise = config.num_denoising, config.label_noise, config.box_noise
            layer = DenoisingQueries(config.num_classes, *noise, name="decoder_denoising")
            queries, references = layer(queries, references)
        heads = box_heads(config)

        def decode(trace, queries, references, mask=None):
            context = {"context": x, "mask": cells}
            tensors = queries, references, shares, position_of, context
            return refined(trace, decoder, heads, *tensors, lambda _: mask)

        states, boxes = decode(trace, queries, references)
        outputs = {
            "encoder_sequence_output": x,
            "decoder_sequence_output": trace.hidden_states["decoder"][-1],
            "decoder_outputs": states,  # (B, L, Q, D)
            "decoder_boxes": boxes,  # (B, L, Q, 4)
            "proposals": proposals,
        }
        super().__init__(config, backbone, pixel_mask, outputs, trace, name=name, **kwargs)
        self.decode, self.first_queries = decode, (queries, references)

    def denoised(self, objects: Any) -> tuple[Any, Any]:
        """What the blocks of the decoder give if it also gets `objects` (B, M, 5), a symbolic tensor as the
        loss takes its targets: states (B, L, N + Q, D) and boxes (B, L, N + Q, 4), first of N denoising
        queries, which there are in training alone. The model must have them.
        """
        queries, references = self.get_layer("decoder_denoising")(*self.first_queries, objects)
        mask = DenoisingMask(self.config.num_queries, name="decoder_denoising_mask")(queries, objects)
        return self.decode(Trace(), queries, references, mask)


class CellSines(SameShape):
    """x + sines of a cell's row, then cosines, then both of its column, a quarter of the features each: (B,
    rows, columns, D).

    The frequencies are as in `SinePositionEncoding`; positions are 0, 1, ...
    """

    def call(self, x):
        grid, dim = tuple(x.shape[1:3]), x.shape[3]
        table = GridSines(grid)((math.prod(grid), dim), "float32")  # the column's before the row's
        return x + ops.cast(ops.reshape(ops.roll(table, dim // 2, axis=1), (*grid, dim)), x.dtype)


def _projected(maps, dim, name):
    """The `maps` in the width `dim`."""
    return [_normalized(dim, 1, name=f"{name}_{i}")(x) for i, x in enumerate(maps)]


def _encoder_block(config, index):
    part = residuals(dropout=config.dropout, epsilon=EPSILON)
    attention = PositionedAttention(MultiHeadAttention(config.num_heads, dropout=config.attention_dropout))
    options = {"dropout": config.activation_dropout}
    feedforward = FeedForward(config.intermediate_dim, config.encoder_activation, **options)
    return Block(
        {"attention": part(attention), "feedforward": part(feedforward)}, name=f"encoder_block_{index}"
    )


def _fused(config, maps):
    """The `maps`, the finest first, joined from the last to the first, and then back to the last."""
    width, activation = config.encoder_width, config.fusion_activation
    x, sides = maps[-1], []
    for i, finer in enumerate(reversed(maps[:-1])):
        sides.append(_normalized(width, 1, activation=activation, name=f"lateral_{i}")(x))
        x = ops.concatenate([resize_nearest(sides[-1], finer.shape[1:3]), finer], axis=-1)
        x = _fusion(config, f"fusion_down_{i}")(x)
    fused = [x]
    for i, side in enumerate(reversed(sides)):
        x = _normalized(width, 3, 2, activation, name=f"downsampling_{i}")(fused[-1])
        fused.append(_fusion(config, f"fusion_up_{i}")(ops.concatenate([x, side], axis=-1)))
    return fused


def _fusion(config, name):
    """Two ways whose sum is the output: one convolution, and one with RepVGG's blocks after it, each the sum
    of a 3 x 3 and a 1 x 1 convolution (the paper's figure 4).
    """
    inner, activation = config.fusion_width, config.fusion_activation
    repeated = [
        ShortcutBlock(_normalized(inner, 3), _normalized(inner, 1), activation=activation)
        for _ in range(NUM_REPEATED)
    ]
    first, other = (_normalized(inner, 1, activation=activation) for _ in range(2))
    layers: list = [ShortcutBlock(Chain([first, *repeated]), other)]
    if inner != config.encoder_width:
        layers.append(_normalized(config.encoder_width, 1, activation=activation))
    return Chain(layers, name=name)


def _normalized(dim, size, stride=1, activation=None, **options):
    return Convolution(dim, size, stride, norm=BatchNormalization(), activation=activation, **options)


def _proposals(config, cells_of_maps, cells, grids, centres):
    """The Q cells whose likeliest class is the most likely: what the decoder begins with (B, Q, D), their
    boxes (B, Q, 4), and logits beside boxes (B, Q, C + 4), for the loss.

    Cells whose anchors reach beyond the image all have the same features and the box (1, 1, 1, 1), as the
    authors have it; of padding none is chosen while there are others.
    """
    boxes, is_possible = anchors_of(config, grids, centres)
    x = ops.where(is_possible, cells_of_maps, ops.zeros_like(cells_of_maps))
    x = LayerNormalization(EPSILON, name="proposal_norm")(Dense(config.dim, name="proposal_projection")(x))
    prior = keras.initializers.Constant(-math.log(99))
    scores = Dense(config.num_classes, bias_initializer=prior, name="proposal_class_head")(x)  # (B, N, C)
    boxes = corrected(ops.where(is_possible, boxes, 0.5), box_head(config.dim, "proposal_box_head")(x))
    boxes = ops.where(is_possible, boxes, 1.0)
    scores, boxes = (ops.cast(y, "float32") for y in (scores, boxes))
    likely = ops.where(cells, ops.max(scores, axis=-1), -math.inf)
    x, scores, boxes = best_of(likely, config.num_queries, x, scores, boxes)
    queries = ops.stop_gradient(x)
    if config.learns_queries:
        queries = LearnedVectors(config.num_queries, name="decoder_queries")(x)
    return queries, ops.stop_gradient(boxes), ops.concatenate([scores, boxes], axis=-1)


# Zhao et al. 2023, table 2: 20, 31, 42 and 76 M parameters. tiny is this package's own, for images of some
# 96 x 96.
_BASIC = {"dims": (64, 128, 256, 512), "block": "basic"}
_18 = RTDETRConfig(backbone_config=_BASIC | {"depths": (2, 2, 2, 2)}, num_decoder_layers=3, expansion=0.5)
RTDETR.sizes = {
    "tiny": RTDETRConfig(
        **TINY,
        dim=64,
        num_decoder_layers=2,
        num_heads=4,
        intermediate_dim=128,
        num_maps=2,
    ),
    "18": _18,
    "34": dataclasses.replace(_18, backbone_config=_BASIC | {"depths": (3, 4, 6, 3)}, num_decoder_layers=4),
    "50": RTDETRConfig(),
    "101": RTDETRConfig(
        backbone_config={"depths": (3, 4, 23, 3)},
        encoder_dim=384,
        intermediate_dim=2048,
        decoder_intermediate_dim=1024,
    ),
}
