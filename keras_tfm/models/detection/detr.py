"""DETR of Carion et al. 2020, "End-to-End Object Detection with Transformers": a set of objects at once.

A backbone's last map, projected, is encoded; object queries, learned vectors, attend to it and to each other
in the decoder, and each becomes one object or none. Positions are added to queries and keys in every block,
and not to values. Batch normalisation keeps its statistics and scales, as the authors' does. Deviates from
the authors' code in the dilated fifth stage (DC5), which it lacks, and in that a stem and a first stage learn
unless they are frozen.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Depth, Heads, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import residuals
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import SineGridPositionEncoding
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import flatten_map
from keras_tfm.layers.positioned_block import PositionedAttention, PositionedBlock
from keras_tfm.models.base import ConfiguredModel, states_of
from keras_tfm.models.detection.backbones import OF_DETECTOR, AroundBackbone

EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class DETRConfig(AroundBackbone):
    """`AroundBackbone` has the fields of the backbone. What the `decoder_` fields leave open, None, is as in
    the encoder. `dropout` acts on what each sub-layer adds, the other two on attention weights and in
    feed-forward layers.
    """

    num_queries: Size = 100
    dim: Size = 256
    num_layers: Depth = 6
    num_decoder_layers: Depth | None = None
    num_heads: Heads = 8
    num_decoder_heads: Heads | None = None
    intermediate_dim: Size = 2048
    decoder_intermediate_dim: Size | None = None
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    activation: str = "relu"

    def __post_init__(self):
        super().__post_init__()
        if self.dim % 4:
            raise ValueError(f"`dim` must be a multiple of four, for the sines; it is {self.dim}.")

    @property
    def decoder_sizes(self):
        """(Layers, heads, feed-forward width) of the decoder."""
        own = self.num_decoder_layers, self.num_decoder_heads, self.decoder_intermediate_dim
        encoders = self.num_layers, self.num_heads, self.intermediate_dim
        return tuple(b if a is None else a for a, b in zip(own, encoders, strict=True))


class DETR(ConfiguredModel):
    """Images in, one vector for each object query out.

    Inputs: `images` (B, H, W, C), floating-point, and `pixel_mask` (B, H, W), True for a pixel of an image
    and False for padding, by default True. Outputs: `encoder_sequence_output` (B, N, D), the cells of the
    encoded map row by row, `decoder_sequence_output` (B, Q, D), and `decoder_outputs` (B, L, Q, D), what each
    decoder block gave, through the one last norm: the last of them is the former. `maps` are the backbone's.
    """

    config_class = DETRConfig

    def __init__(self, config, name="detr", **kwargs):
        backbone = config.new_backbone()
        images = backbone.input["images"]
        pixel_mask = keras.Input(images.shape[1:3], dtype="bool", name="pixel_mask")
        encoder = [detr_block(config, "encoder", i) for i in range(config.num_layers)]
        decoder = [detr_block(config, "decoder", i) for i in range(config.decoder_sizes[0])]

        x = Convolution(config.dim, 1, name="encoder_projection")(backbone.maps[-1])
        cells = nearest_cells(pixel_mask, x.shape[1:3])
        position = SineGridPositionEncoding(normalize=True, name="encoder_position")(ops.zeros_like(x), cells)
        position, cells = flatten_map(position), ops.reshape(cells, (-1, x.shape[1] * x.shape[2]))  # (B, N)
        encoded = states_of(encoder, flatten_map(x), mask=cells, position=position)

        queries = ObjectQueries(config.num_queries, name="decoder_queries")(encoded[-1])
        context = {"context": encoded[-1], "context_mask": cells, "context_position": position}
        decoded = states_of(decoder, ops.zeros_like(queries), position=queries, **context)
        norm = LayerNormalization(EPSILON, name="decoder_norm")
        outputs = norm(ops.stack(decoded[1:], axis=1))  # (B, L, Q, D)
        super().__init__(
            config,
            {"images": images, "pixel_mask": pixel_mask},
            {
                "encoder_sequence_output": encoded[-1],
                "decoder_sequence_output": outputs[:, -1],
                "decoder_outputs": outputs,
            },
            {"backbone": backbone.blocks["encoder"], "encoder": encoder, "decoder": decoder},
            {"backbone": backbone.hidden_states["encoder"], "encoder": encoded, "decoder": decoded},
            name=name,
            **kwargs,
        )
        self.maps = backbone.maps

    @classmethod
    def around(cls, backbone, **fields):
        """A detector with the weights of `backbone`, a model of images with `maps`.

        `fields` are those of `DETRConfig`. ValueError for images of another size for which the
        backbone has no weights, and for a model without maps.
        """
        config = dataclasses.asdict(backbone.config)
        own = {name: config.pop(name) for name in OF_DETECTOR}
        detector = cls(
            DETRConfig(**{**own, **fields}, backbone=type(backbone).__name__, backbone_config=config)
        )
        given = {weight.path: weight for weight in backbone.weights}
        for weight in detector.weights:
            if (value := given.get(weight.path)) is None:
                continue
            if value.shape != weight.shape:
                size = detector.config.image_size
                raise ValueError(f"`backbone` has weights for images of its own size alone; it is {size}.")
            weight.assign(value)
        return detector

    def _fill(self, name, inputs):
        if name != "pixel_mask" or "images" not in inputs:
            return super()._fill(name, inputs)
        return ops.ones_like(inputs["images"][..., 0], "bool")


def detr_block(config, stack, index):
    """The block of this number of the encoder or the decoder."""
    is_decoder = stack == "decoder"
    encoder_sizes = config.num_layers, config.num_heads, config.intermediate_dim
    _, num_heads, width = config.decoder_sizes if is_decoder else encoder_sizes
    part = residuals(dropout=config.dropout, epsilon=EPSILON)

    def attention():
        return part(PositionedAttention(MultiHeadAttention(num_heads, dropout=config.attention_dropout)))

    feedforward = FeedForward(width, config.activation, dropout=config.activation_dropout)
    context_attention = attention() if is_decoder else None
    return PositionedBlock(attention(), part(feedforward), context_attention, name=f"{stack}_block_{index}")


def nearest_cells(mask, grid):
    """The values of `mask` (B, H, W) at a grid's cells, (B, rows, columns): the pixel at a cell's upper left
    corner, rounded down in float32 as `torch.nn.functional.interpolate` does.
    """
    for axis, (count, length) in enumerate(zip(grid, mask.shape[1:], strict=True), start=1):
        places = np.floor(np.arange(count, dtype="float32") * np.float32(length / count)).astype("int32")
        mask = ops.take(mask, np.minimum(places, length - 1), axis=axis)
    return mask


class ObjectQueries(Layer):
    """A learned vector for each of `num_queries` objects: of a `context` (B, N, D) it gives (B, Q, D)."""

    def __init__(self, num_queries, **kwargs):
        super().__init__(**kwargs)
        if num_queries < 1:
            raise ValueError(f"`num_queries` must be at least 1; it is {num_queries}.")
        self.num_queries = num_queries

    def build(self, context_shape):
        initializer = keras.initializers.RandomNormal(stddev=1.0)  # torch.nn.Embedding's
        self.table = self.add_weight((self.num_queries, context_shape[-1]), initializer, name="table")
        self.built = True

    def call(self, context):
        """Only the batch's size is read of the `context`."""
        shape = (ops.shape(context)[0], self.num_queries, context.shape[-1])
        return ops.broadcast_to(ops.cast(self.table, context.dtype), shape)

    def compute_output_shape(self, context_shape):
        return (context_shape[0], self.num_queries, context_shape[-1])

    def compute_mask(self, context, previous_mask=None):
        return None


# Carion et al. 2020, table 1: DETR, of 41 M parameters, and DETR-R101, of 60 M. tiny is this package's own,
# for images of some 96 x 96.
DETR.sizes = {
    "tiny": DETRConfig(
        image_size=96,
        backbone_config={"stem_dim": 32, "dims": (32, 64, 128), "depths": (1, 1, 1), "block": "basic"},
        frozen_norms=False,
        num_queries=16,
        dim=128,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=4,
        intermediate_dim=256,
        dropout=0.0,
    ),
    "50": DETRConfig(),
    "101": DETRConfig(backbone_config={"depths": (3, 4, 23, 3)}),
}
