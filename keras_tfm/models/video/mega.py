"""MEGA of Chen et al. 2020, "Memory Enhanced Global-Local Aggregation for Video Object Detection": boxes of a
frame that learn from boxes of other frames.

    boxes of frames from the whole video (global) --.
    boxes of the frames around the key frame (local) -> relation without places --> relations with places -->
                        boxes of frames that were local before (memory) ----------->

A relation is attention (Hu et al. 2018, "Relation Networks for Object Detection") whose sum is added, and a
dense layer. After the first one with places only a share of a frame's boxes is read by others. The boxes, and
what `RoIAlign` reads in them, are an input: the paper's come from a network that proposes them. The memory is
an argument and a result, never a variable. Written from the paper: the authors' code may not be used
commercially. Deviates from it in that the memory keeps the same boxes of a frame for all relations. There are
no weights to read.
"""

import dataclasses
import math
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Positive, Refusal, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, Residual
from keras_tfm.layers.box_geometry import BoxGeometry
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.signatures import Tensor
from keras_tfm.models.base import ConfiguredModel, Trace


@dataclasses.dataclass(frozen=True)
class MEGAConfig(Config):
    """The sizes of a `MEGA`.

    Args:
        num_frames: the local frames, an odd number; the key frame is the middle one.
        num_regions: N, the boxes of a local frame.
        num_advanced: how many of them, the first, are read by later relations and kept in the memory.
        num_memory_frames: the frames in the memory.
        num_layers: L, the relations with places.
        region_size: the side of a region, in cells.
        geometry_dim: the width of the sines of two boxes' places, as is `geometry_scale` of `BoxGeometry`.
    """

    num_frames: Size = 25
    num_regions: Size = 75
    num_advanced: Size = 15
    num_memory_frames: Size = 25
    num_layers: Depth = 3
    region_size: Size = 7
    region_dim: Size = 256
    dim: Size = 1024
    num_heads: Heads = 16
    geometry_dim: Size = 64
    geometry_scale: Positive = 100.0

    def __post_init__(self):
        super().__post_init__()
        if not self.num_frames % 2:
            raise Refusal("num_frames", "odd, the key frame in the middle", self.num_frames)
        if self.num_advanced > self.num_regions:
            raise Refusal("num_advanced", f"at most `num_regions`, {self.num_regions}", self.num_advanced)

    @property
    def memory_size(self):
        """M, the boxes in the memory."""
        return self.num_memory_frames * self.num_advanced


class MEGA(ConfiguredModel):
    """Boxes of a key frame, of the frames around it, of frames of the whole video and of a memory in; a
    vector for each box of the key frame and the memory for the next one out.

    Inputs: `regions` (B, F N, size, size, C), as of `RoIAlign`, `boxes` (B, F N, 4), (x, y, width, height)
    around the centre as parts of the image's sides, and `region_mask` (B, F N), of F local frames in their
    order, the likeliest objects of each first; `global_regions` (B, G, size, size, C) and
    `global_region_mask` (B, G), of any number of others; `memory` (B, L, M, D) and `memory_boxes` (B, M, 4),
    as of the key frame before or of `first_memory`; a box without sides is none. Outputs: `sequence_output`
    (B, N, D), `memory` and `memory_boxes`, where the first local frame has taken the place of the frame that
    was there longest. In training the paper's memory passes no gradient on: `keras.ops.stop_gradient`.
    Classify the boxes by `heads.TokenTagger`.

    >>> model = keras_tfm.models.MEGA.from_size("tiny")
    >>> frames = {"regions": np.ones((1, 5 * 8, 3, 3, 32)), "boxes": np.full((1, 5 * 8, 4), 0.5)}
    >>> frames["global_regions"] = np.ones((1, 20, 3, 3, 32))
    >>> first = model(frames | model.first_memory(1))
    >>> second = model(frames | {name: first[name] for name in ("memory", "memory_boxes")})
    >>> second["sequence_output"].shape, second["memory"].shape
    (TensorShape([1, 8, 64]), TensorShape([1, 2, 12, 64]))
    """

    config_class = MEGAConfig

    def __init__(self, config: MEGAConfig, name: str = "mega", **kwargs: Any) -> None:
        size = config.region_size, config.region_size, config.region_dim
        num_regions, num_advanced = config.num_regions, config.num_advanced
        inputs = {
            "regions": keras.Input((config.num_frames * num_regions, *size), name="regions"),
            "boxes": keras.Input((config.num_frames * num_regions, 4), name="boxes"),
            "region_mask": keras.Input((config.num_frames * num_regions,), dtype="bool", name="region_mask"),
            "global_regions": keras.Input((None, *size), name="global_regions"),
            "global_region_mask": keras.Input((None,), dtype="bool", name="global_region_mask"),
            "memory": keras.Input((config.num_layers, config.memory_size, config.dim), name="memory"),
            "memory_boxes": keras.Input((config.memory_size, 4), name="memory_boxes"),
        }
        regions, boxes, mask, pool, pool_mask, memory, memory_boxes = inputs.values()
        memory_mask = ops.all(memory_boxes[..., 2:] > 0, axis=-1)
        flat = keras.layers.Reshape((-1, math.prod(size)), name="cells")
        projection = Dense(config.dim, "relu", name="region_projection")
        trace, first_frame = Trace(), []
        x = relation(config, trace, 0, projection(flat(regions)), projection(flat(pool)), pool_mask)
        sources = x, boxes, mask  # what the boxes hear, with places and a mask
        x, places, advanced_mask = (_key_and_advanced(config, tensor) for tensor in sources)
        for i in range(config.num_layers):
            first_frame.append(x[:, num_regions : num_regions + num_advanced])
            if i == config.num_layers - 1:  # nothing reads the other frames' boxes any more
                x, places = x[:, :num_regions], places[:, :num_regions]
            pairs = zip(sources, (memory[:, i], memory_boxes, memory_mask), strict=True)
            context, context_places, context_mask = (ops.concatenate(pair, axis=1) for pair in pairs)
            sines = config.geometry_dim, config.geometry_scale
            bias = BoxGeometry(config.num_heads, *sines, name=f"geometry_{i}")(places, context_places)
            x = relation(config, trace, i + 1, x, context, context_mask, bias)
            sources = x[:, num_regions:], places[:, num_regions:], advanced_mask[:, num_regions:]
        first_boxes = boxes[:, :num_advanced] * ops.cast(mask[:, :num_advanced, None], boxes.dtype)
        memory = ops.cast(memory[:, :, num_advanced:], x.dtype)
        memory_boxes = ops.concatenate([memory_boxes[:, num_advanced:], first_boxes], axis=1)
        outputs = {
            "sequence_output": x,
            "memory": ops.concatenate([memory, ops.stack(first_frame, axis=1)], axis=2),
            "memory_boxes": ops.cast(memory_boxes, x.dtype),
        }
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)

    def first_memory(self, batch_size: int) -> dict[str, Tensor]:
        """The inputs `memory` and `memory_boxes` for a first key frame, with no box in them."""
        names = ("memory", "memory_boxes")
        return {name: ops.zeros((batch_size, *self.input[name].shape[1:])) for name in names}


def relation(config, trace, number, x, context, mask, bias=None):
    """The boxes `x` (B, T, D) after what they hear of the `context` (B, S, D), where `mask` (B, S) is True;
    of no box they hear 0.
    """
    attention = MultiHeadAttention(config.num_heads, output_layer=keras.layers.Identity())
    block = Block({"context_attention": Residual(attention)}, name=f"block_{number}")
    x = trace.run("encoder", [block], x, context_attention={"context": context, "mask": mask, "bias": bias})
    return Dense(config.dim, "relu", name=f"projection_{number}")(x)


def _key_and_advanced(config, x):
    """The rows of the key frame's boxes, and then of the advanced boxes of all frames, (B, N + F A, ...), in
    `x`, a row for each box, (B, F N, ...).
    """
    rest = x.shape[2:]
    x = ops.reshape(x, (-1, config.num_frames, config.num_regions, *rest))  # (B, F, N, ...)
    advanced = x[:, :, : config.num_advanced]
    advanced = ops.reshape(advanced, (-1, config.num_frames * config.num_advanced, *rest))  # (B, F A, ...)
    return ops.concatenate([x[:, config.num_frames // 2], advanced], axis=1)


# Chen et al. 2020, section 4.2. tiny is this package's own.
MEGA.sizes = {
    "tiny": MEGAConfig(5, 8, 4, 3, 2, 3, 32, 64, 4, 16),
    "base": MEGAConfig(),
}
