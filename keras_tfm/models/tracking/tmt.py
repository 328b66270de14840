"""TMT of Wang et al. 2021, "Transformer Meets Tracker: Exploiting Temporal Context for Robust Visual
Tracking": what earlier frames show of an object is carried over to the frame that is searched.

    templates ---> encoder --------+--- features x labels ---> added to features ----+
    (several frames, label maps)   |                                                 +--> searched features
    search ------> self-attention -+--- labels --------------> multiply features ----+

Attention compares by cosines, with one projection for queries and keys and none for values; encoder and
decoder share their self-attention. There are no positions and no feed-forward layers. Both branches transfer
what stands where the templates look alike: their labels, and their features there. The authors' layers have
another projection for values, of 262,656 weights each, without a use; these have not.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, Positive, Size
from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import unit
from keras_tfm.layers.patches import flatten_map, height_and_width
from keras_tfm.models.detection.backbones import AroundBackbone, ModelAroundBackbone, on_images
from keras_tfm.models.tracking.siamese import THREE_STAGES, TINY
from keras_tfm.models.vision.images import Side


@dataclasses.dataclass(frozen=True)
class TMTConfig(AroundBackbone):
    """`AroundBackbone` has the fields of the backbone; `num_frames` are the templates', `key_dim` the width
    in which cells are compared, and `temperature` multiplies their cosines.
    """

    image_size: Side | tuple[Side, Side] = 352
    backbone_config: dict = dataclasses.field(default_factory=lambda: {**THREE_STAGES, "last_stride": 2})
    num_frames: Annotated[int, Between(1, 2**10)] = 3
    dim: Size = 512
    key_dim: Size = 128
    temperature: Positive = 30.0


class TMT(ModelAroundBackbone):
    """Templates with label maps and an image to search in, the vectors of all cells out.

    Inputs: `template_images` (B, F, H, W, C) and `images` (B, H, W, C), floating-point, and `labels` (B, F,
    rows, columns), for each cell of the templates' maps how much it is the object's, a Gaussian for example.
    Outputs: `sequence_output` (B, N, D), the cells of the searched image row by row, and of the templates,
    (B, F N, D), `template_sequence_output`, as they pass the decoder too, and `encoder_sequence_output`.

    >>> model = keras_tfm.models.TMT.from_size("tiny")
    >>> images = {"template_images": np.zeros((1, 3, 64, 64, 3)), "images": np.zeros((1, 64, 64, 3))}
    >>> model(images | {"labels": np.ones((1, 3, 8, 8))})["sequence_output"].shape
    TensorShape([1, 64, 64])
    """

    config_class = TMTConfig

    def __init__(self, config: TMTConfig, name: str = "tmt", **kwargs: Any) -> None:
        backbone, projection = config.new_backbone(), Convolution(config.dim, 3, name="projection")
        size = height_and_width(config.image_size, "image_size")
        templates = keras.Input((config.num_frames, *size, config.num_channels), name="template_images")
        images = keras.Input((*size, config.num_channels), name="images")
        frames, _ = on_images(backbone, ops.reshape(templates, (-1, *images.shape[1:])))  # (B F, H, W, C)
        maps, trace = on_images(backbone, images)
        x, template = (flatten_map(projection(found[-1])) for found in (maps, frames))
        grid, (num_cells, dim) = maps[-1].shape[1:3], x.shape[1:]
        labels = keras.Input((config.num_frames, *grid), name="labels")
        length = config.num_frames * num_cells
        memory = ops.reshape(instance_norm(template, num_cells), (-1, length, dim))  # (B, F N, D)

        parts = num_cells, config.key_dim, config.temperature
        attend, transfer = SelfTransfer(*parts, name="self_block"), LabelTransfer(*parts, name="label_block")
        memory = trace.run("encoder", [attend], memory)
        shown = {"memory": memory, "labels": ops.reshape(labels, (-1, length, 1))}
        searched = trace.run("decoder", [transfer], attend(instance_norm(x, num_cells)), **shown)
        own = attend(ops.reshape(memory, (-1, num_cells, dim)))  # each template alone
        own = transfer(ops.reshape(own, (-1, length, dim)), **shown)
        outputs = {
            "sequence_output": searched,
            "template_sequence_output": own,
            "encoder_sequence_output": memory,
        }
        inputs = {"template_images": templates, "images": images, "labels": labels}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.maps = maps
        self.grid = tuple(grid)


class Transfer(SameShape):
    """What both blocks have: attention by cosines, and frames of `num_cells` cells, each normalised by
    itself. Abstract.
    """

    is_block = True

    def __init__(self, num_cells: int, key_dim: int, temperature: float = 30.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_cells = num_cells
        self.key_dim = key_dim
        self.temperature = temperature
        self.attention = CosineAttention(key_dim, temperature)

    def build(self, x_shape):
        self.attention.build(x_shape)


class SelfTransfer(Transfer):
    """x + what the cells of `x` (B, F N, D) receive from each other, normalised: (B, F N, D)."""

    def call(self, x):
        """(B, F N, D) -> (B, F N, D)."""
        return instance_norm(x + self.attention(x), self.num_cells)


class LabelTransfer(Transfer):
    """Cells `x` (B, T, D) with what they receive of a `memory` (B, S, D) with `labels` (B, S, 1): (B, T, D).

    One branch multiplies x by the labels, the other adds the labelled memory; their sum is normalised, as
    each is before.
    """

    def build(self, x_shape, memory_shape=None, labels_shape=None):
        super().build(x_shape)

    def call(self, x, memory=None, labels=None):
        """(B, T, D) -> (B, T, D)."""
        labels, dim = ops.cast(labels, x.dtype), x.shape[-1]
        found = self.attention(x, memory, ops.concatenate([memory * labels, labels], axis=-1))
        masked = instance_norm(x * found[..., dim:], self.num_cells)
        added = instance_norm(x + found[..., :dim], self.num_cells)
        return instance_norm(masked + added, self.num_cells)


class CosineAttention(Layer):
    """Attention by the cosines of projected queries and keys, times a `temperature`: values as they are.

    One projection to `key_dim` serves queries and keys.
    """

    def __init__(self, key_dim: int, temperature: float = 30.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.key_dim = key_dim
        self.temperature = temperature
        self.projection = Dense(key_dim)

    def build(self, query_shape, key_shape=None, value_shape=None):
        self.projection.build(query_shape)

    def call(self, query, key=None, value=None):
        """Average `value` (B, S, K) for each `query` (B, T, D) by its cosines with `key` (B, S, D): (B, T,
        K).

        Without keys and values the queries attend to themselves.
        """
        key = query if key is None else key
        value = key if value is None else value
        queries, keys = (unit(self.projection(x)) for x in (query, key))
        weights = ops.softmax(self.temperature * ops.einsum("btk,bsk->bts", queries, keys))
        tap(self, weights[:, None])
        return ops.einsum("bts,bsk->btk", ops.cast(weights, value.dtype), value)

    def compute_output_shape(self, query_shape, key_shape=None, value_shape=None):
        return (*query_shape[:-1], (value_shape or key_shape or query_shape)[-1])


def instance_norm(x, num_cells):
    """The cells `x` (B, F N, D) of frames of `num_cells`, N, in float32 divided by four times the root of the
    mean square of their frame's numbers, and by the root of D.
    """
    dim = x.shape[-1]
    frames = ops.cast(ops.reshape(x, (-1, num_cells * dim)), "float32")
    mean = ops.mean(ops.square(frames), axis=-1, keepdims=True)
    frames = frames * ops.rsqrt(16 * dim * (mean + 1e-10))
    return ops.cast(ops.reshape(frames, (-1, *x.shape[1:])), x.dtype)


# Wang et al. 2021, section 5.1: three templates of 352 x 352 pixels. tiny is this package's own.
_TINY = {name: TINY[name] for name in ("image_size", "backbone_config", "frozen_norms", "dim")}
TMT.sizes = {"tiny": TMTConfig(**_TINY, key_dim=32), "50": TMTConfig()}
