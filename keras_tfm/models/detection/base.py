"""What detectors of a set of objects have in common: a backbone with maps, padding, queries, sizes."""

import dataclasses
import math
from typing import Annotated, Any, NamedTuple

import keras
from keras import ops

from keras_tfm.configs import Between, Depth, Heads, InWeights, Multiple, Rate, Refusal, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import SineGridPositionEncoding
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.positioned_block import PositionedAttention
from keras_tfm.layers.positions import sines
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models.detection.backbones import AroundBackbone, ModelAroundBackbone
from keras_tfm.private.keras import change_value

EPSILON = 1e-5
Queries = Annotated[int, Between(1, 2**14)]  # each attends to all others
LearnedQueries = Annotated[Queries, InWeights(is_depth=False)]
SineWidth = Annotated[Size, Multiple(4)]  # a width: the sines and cosines of two coordinates


@dataclasses.dataclass(frozen=True)
class SetDetectorConfig(AroundBackbone):
    """`AroundBackbone` has the fields of the backbone. What the `decoder_` fields leave open, None, is as in
    the encoder. `dropout` acts on what each sub-layer adds, the other two on attention weights and in
    feed-forward layers.
    """

    num_queries: LearnedQueries = 100
    dim: SineWidth = 256
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

    @property
    def decoder_sizes(self):
        """(Layers, heads, feed-forward width) of the decoder."""
        decoder = self.num_decoder_layers, self.num_decoder_heads, self.decoder_intermediate_dim
        encoder = self.num_layers, self.num_heads, self.intermediate_dim
        return tuple(b if a is None else a for a, b in zip(decoder, encoder, strict=True))


class SetDetector(ModelAroundBackbone):
    """A model that turns images into a set of vectors, one for each object query. Abstract.

    Inputs: `images` (B, H, W, C), floating-point, and `pixel_mask` (B, H, W), True for a pixel of an image
    and False for padding, by default True. `maps` are the backbone's.
    """

    config_class: type[SetDetectorConfig]

    def __init__(self, config, backbone, pixel_mask, outputs, trace, **kwargs):
        inputs = {"images": backbone.input["images"], "pixel_mask": pixel_mask}
        super().__init__(config, inputs, outputs, trace, **kwargs)
        self.maps = backbone.maps


def start_of(config):
    """The backbone of a detector of this configuration, the input `pixel_mask`, and the `Trace`."""
    backbone = config.new_backbone()
    pixel_mask = keras.Input(backbone.input["images"].shape[1:3], dtype="bool", name="pixel_mask")
    return backbone, pixel_mask, config.trace_of(backbone)


def last_maps(maps, count, field="num_maps"):
    """The last `count` of a backbone's `maps`; `Refusal` of the `field` that asks for more than there are."""
    if count > len(maps):
        raise Refusal(field, f"at most {len(maps)}", count)
    return maps[-count:]


class EncodedMap(NamedTuple):
    """What the encoder makes of a map of N cells.

    `cells` (B, rows, columns) are True where no padding is; `context` are the tensors with which the
    cross-attention of a `detr_block` attends to the encoder's output, itself the first of them.
    """

    cells: Any
    context: dict

    @property
    def grid(self):
        """(Rows, columns) of the map."""
        return tuple(self.cells.shape[1:3])


def encoded_map(config, backbone, pixel_mask, trace):
    """The last map of `backbone`, projected to the width of the Transformer and encoded."""
    x = Convolution(config.dim, 1, name="encoder_projection")(backbone.maps[-1])
    return encoded_cells(config, x, resize_nearest(pixel_mask, x.shape[1:3]), trace)


def encoded_cells(config, x, cells, trace):
    """A projected map or clip of maps `x` (B, ..., D), encoded; `cells` (B, ...) are False at padding."""
    blocks = [detr_block(config, "encoder", i) for i in range(config.num_layers)]
    length = math.prod(cells.shape[1:])
    position = SineGridPositionEncoding(normalize=True, name="encoder_position")(ops.zeros_like(x), cells)
    x, position = (ops.reshape(y, (-1, length, config.dim)) for y in (x, position))  # (B, N, D)
    mask = ops.reshape(cells, (-1, length))  # (B, N)
    x = trace.run("encoder", blocks, x, attention={"mask": mask, "position": position})
    return EncodedMap(cells, {"context": x, "mask": mask, "context_position": position})


def outputs_of(trace):
    """The outputs that DETR and its kin share, by their names, of the states of encoder and decoder."""
    norm = LayerNormalization(EPSILON, name="decoder_norm")
    outputs = norm(ops.stack(trace.hidden_states["decoder"][1:], axis=1))  # (B, L, Q, D)
    return {
        "encoder_sequence_output": trace.hidden_states["encoder"][-1],
        "decoder_sequence_output": outputs[:, -1],
        "decoder_outputs": outputs,
    }


def references_of(logits):
    """The `logits` of points (B, Q, 2) as logits of boxes without sides, to which a head adds its own: (B, 1,
    Q, 4).
    """
    return ops.pad(logits[:, None], [(0, 0)] * 3 + [(0, 2)])


def detr_block(config, stack, index):
    """The block of this number of the encoder or the decoder."""
    is_decoder = stack == "decoder"
    encoder_sizes = config.num_layers, config.num_heads, config.intermediate_dim
    _, num_heads, width = config.decoder_sizes if is_decoder else encoder_sizes
    part = residuals(dropout=config.dropout, epsilon=EPSILON)

    def attention():
        return part(PositionedAttention(MultiHeadAttention(num_heads, dropout=config.attention_dropout)))

    parts = {
        "attention": attention(),
        "context_attention": attention() if is_decoder else None,
        "feedforward": part(FeedForward(width, config.activation, dropout=config.activation_dropout)),
    }
    return Block(parts, name=f"{stack}_block_{index}")


def copy_contexts(block):
    """Set the kernels of values and outputs to the identity in the attention of `block` to the image and,
    in `RelTR`, to entities.

    What fresh attention adds to a state is then the mean of the cells or entities that it looks at, and the
    first steps learn where to look alone, not how to carry what is there as well.
    """
    for name, part in block.parts.items():
        if name.endswith("_attention"):
            attention = part.branch.attention
            for kernel in (attention.projections.value.kernel, attention.output_projection.kernel):
                change_value(kernel, lambda value: ops.eye(*value.shape, dtype=value.dtype))


def begin_with_a_state(block):
    """Draw the bias of the output of self-attention anew, of deviation 1, in the first `block` of a decoder
    whose states are zeros.

    Attention to zeros gives this bias alone. The norm after it multiplies the gradient of a bias of zeros by
    `EPSILON` ** -0.5, 316, so that clipped by their common norm all other gradients would be next to nothing.
    """
    draw = keras.initializers.RandomNormal(stddev=1.0)
    bias = block.parts["attention"].branch.attention.output_projection.bias
    change_value(bias, lambda value: draw(value.shape, value.dtype))


def about_queries(queries, context, **tensors):
    """The tensors of a block's parts: `queries` (B, Q, D) are the positions of both attentions;
    cross-attention gets `context` too, and self-attention `tensors`.
    """
    return {
        "attention": {"position": queries, **tensors},
        "context_attention": {"position": queries, **context},
    }


def inverse_sigmoid(x):
    """log(x / (1 - x)) of x from 0 to 1, both kept above 1e-5."""
    x = ops.clip(x, 0.0, 1.0)
    return ops.log(ops.maximum(x, 1e-5) / ops.maximum(1 - x, 1e-5))


class CoordinateSines(Layer):
    """The sines of coordinates from 0 to 1, turned to angles up to 2 pi: (B, Q, n) -> (B, Q, n `dim`).

    `dim` numbers of each coordinate, as in `SinePositionEncoding`, stand side by side.
    """

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim

    def call(self, coordinates):
        """In float32 inside; the dtype of the coordinates comes out."""
        count = coordinates.shape[-1]
        encoding = sines(ops.cast(coordinates, "float32") * (2 * math.pi), self.dim)  # (B, Q, n, dim)
        encoding = ops.reshape(encoding, (*ops.shape(coordinates)[:-1], count * self.dim))
        return ops.cast(encoding, coordinates.dtype)

    def compute_output_shape(self, coordinates_shape):
        return (*coordinates_shape[:-1], coordinates_shape[-1] * self.dim)
