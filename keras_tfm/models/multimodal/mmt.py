"""MMT of Gabeur et al. 2020, "Multi-modal Transformer for Video Retrieval": what experts say of a video.

Experts are networks for faces, written words, sound and so on, which are not part of this model; each has
described some moments of the video by vectors of its own width.

    features of expert n ----+--> projection --> unit length --> + vector of n, + vector of the second --+
                  maximum ---+                                                                           |
    outputs at the maxima, one vector for each expert <-- Transformer <-- tokens of all experts <--------+

    text --> BERT --> state of [CLS] --+--> gated embedding unit for each expert --> one vector for each
                                       +--> logits of the experts' weights

`heads.ExpertMatcher` compares both. Deviates from the authors' code in that the Transformer reads no further
[CLS], as in the paper, and in that the gates have no bias before their batch normalisation, which has one.
There are no weights to read.
"""

import dataclasses
import functools
from typing import Any, Self

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Length, Rate, Size
from keras_tfm.inputs import refuse_outside
from keras_tfm.layers.base import Layer
from keras_tfm.layers.convolution import BatchNormalization
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.masks import in_float32, masked_max
from keras_tfm.layers.normalization import LayerNormalization, unit
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import Trace
from keras_tfm.models.multimodal.dual_encoder import TwoTowers, UnitLength
from keras_tfm.models.text.bert import BERT, BERTConfig
from keras_tfm.training.weights import assign_by_path, by_path

WHOLE_VIDEO, NO_TIME, FIRST_SECOND = 0, 1, 2  # rows of the table of times
UNKNOWN = -1  # the time of a feature that has none


@dataclasses.dataclass(frozen=True)
class MMTConfig(Config):
    """The sizes of an `MMT`; fields of blocks are the videos'.

    Args:
        text: BERT's configuration.
        experts: the names of the experts, with which the names of the inputs begin.
        expert_dims: the widths of their features.
        num_seconds: how many seconds of a video have a vector.
    """

    text: BERTConfig = dataclasses.field(default_factory=lambda: BERTConfig(28_996, pooler=False))
    experts: tuple[str, ...] = ("face", "ocr", "rgb", "s3d", "scene", "speech", "vggish")
    expert_dims: tuple[Size, ...] = (512, 300, 2048, 1024, 2208, 300, 128)
    num_seconds: Length = 30
    num_layers: Depth = 4
    dim: Size = 512
    num_heads: Heads = 4
    intermediate_dim: Size = 3072
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    activation: str = "gelu"
    epsilon: Rate = 1e-12

    def __post_init__(self):
        super().__post_init__()
        is_known = all(map(str.isidentifier, self.experts)) and len({*self.experts}) == len(self.experts) > 0
        if not is_known or len(self.experts) != len(self.expert_dims):
            raise ValueError(
                "`experts` must be different names, one for each of `expert_dims`; they are "
                f"{self.experts} and {self.expert_dims}."
            )

    @property
    def parts(self):
        """Configurations within this one, whose sizes are checked with its own."""
        return (self.text,)


class MMT(TwoTowers):
    """Experts' features of videos, and texts, in; vectors of both in one space for each of N experts out.

    Inputs: for each expert, after its name and "_", `features` (B, S, F), floating-point, S and F its own;
    `feature_mask` (B, S), nowhere True where the expert has nothing to say of the video; `feature_times` (B,
    S), the second from 0 on, or -1 if it is unknown, as by default. And `token_ids`, `padding_mask` and
    `segment_ids`, (B, T), with [CLS] first. Outputs: `video_embeddings` and `text_embeddings` (B, N, D), of
    unit length; `video_experts` (B, N), 1 where the expert has features, else 0; `text_expert_logits` (B, N)
    of the experts' weights. `video` and `text` are the two encoders.

    >>> model = keras_tfm.models.MMT.from_size("tiny")
    >>> inputs = {"motion_features": np.ones((2, 5, 32)), "sound_features": np.ones((2, 3, 16))}
    >>> inputs["sound_feature_mask"] = np.array([[True, True, False], [False] * 3])  # no sound in the second
    >>> output = model({**inputs, "token_ids": np.ones((2, 4), "int32")})
    >>> output["video_embeddings"].shape, output["video_experts"].numpy().tolist()
    (TensorShape([2, 2, 64]), [[1.0, 1.0], [1.0, 0.0]])
    """

    config_class = MMTConfig
    sides = ("video", "text")

    def __init__(self, config: MMTConfig, name: str = "mmt", **kwargs: Any) -> None:
        bert = BERT(config.text, name="text")
        trace = Trace({"text": bert.blocks["encoder"]}, {"text": bert.hidden_states["encoder"]})
        state = ops.take(bert.output["sequence_output"], 0, axis=1)  # (B, C)
        count = len(config.experts)
        outputs = {
            "embeddings": GatedEmbedding(count, config.dim, name="text_embeddings")(state),
            "expert_logits": Dense(count, kernel_initializer=NORMAL.clone(), name="expert_logits")(state),
        }
        towers = _video(config, trace), (bert.input, outputs)
        super().__init__(config, towers, trace, name=name, **kwargs)
        self.embedding = bert.embedding

    @classmethod
    def around(cls, bert: BERT, **fields: Any) -> Self:
        """A model with the weights of `bert`, and fresh ones of all else; `fields` are a configuration's."""
        model = cls(cls.config_class(bert.config, **fields), dtype=bert.dtype_policy)
        assign_by_path(model, by_path(bert))
        return model

    @functools.cached_property
    def video(self) -> keras.Model:
        """The videos' tower alone: `embeddings` and `experts` of the experts' features."""
        return self.tower("video")


def _video(config, trace):
    inputs: dict[str, Any] = {}
    parts = []
    for expert, width in zip(config.experts, config.expert_dims, strict=True):
        features = keras.Input((None, width), name=f"{expert}_features")
        mask = keras.Input((None,), dtype="bool", name=f"{expert}_feature_mask")
        times = keras.Input((None,), dtype="int32", name=f"{expert}_feature_times")
        inputs |= {x.name: x for x in (features, mask, times)}
        tokens = ExpertTokens(config.dim, config.num_seconds, name=f"{expert}_tokens")
        parts.append(tokens(features, mask, times))
    x, mask, places = (_whole_first(tensors) for tensors in zip(*parts, strict=True))
    x = PositionEmbedding(config.num_seconds + FIRST_SECOND, NORMAL, name="time")(x, positions=places)
    x = LayerNormalization(config.epsilon, name="video_norm")(x)
    x = Dropout(config.dropout, name="video_dropout")(x)
    blocks = [BERT.block(config, f"video_block_{i}") for i in range(config.num_layers)]
    x = trace.run("video", blocks, x, attention={"mask": mask})
    count = len(config.experts)
    embeddings = UnitLength(name="video_embeddings")(x[:, :count])
    return inputs, {"embeddings": embeddings, "experts": ops.cast(mask[:, :count], embeddings.dtype)}


def _whole_first(tensors):
    """The experts' tensors (B, 1 + S, ...) as one: first what is of whole videos, then what is of moments."""
    return ops.concatenate([*(x[:, :1] for x in tensors), *(x[:, 1:] for x in tensors)], axis=1)


class ExpertTokens(Layer):
    """The tokens of an expert: of its features (B, S, F), where the `mask` (B, S) is True, and of the maximum
    of each number over them.

    Returns (B, 1 + S, `dim`), the maximum's first, vectors of unit length to which the expert's is added;
    which of them are there, (B, 1 + S); and the rows of the table of times, (B, 1 + S). Raises ValueError for
    `times` that are neither -1 nor in [0, `num_seconds`).
    """

    def __init__(self, dim: int, num_seconds: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.num_seconds = num_seconds
        self.projection = Dense(dim, kernel_initializer=NORMAL.clone())

    def build(self, features_shape, mask_shape=None, times_shape=None):
        self.projection.build(features_shape)
        self.expert = self.add_weight((self.dim,), NORMAL.clone(), name="expert")

    def call(self, features, mask, times):
        features = ops.where(mask[..., None], features, 0)  # NaN may stand for what is missing
        whole = ops.cast(masked_max(features, mask), features.dtype)[:, None]  # (B, 1, F)
        x = self.projection(ops.concatenate([whole, features], axis=1))
        x = ops.cast(unit(x) + in_float32(self.expert), x.dtype)  # (B, 1 + S, D)
        mask = ops.concatenate([ops.any(mask, axis=1, keepdims=True), mask], axis=1)
        places = ops.pad(self._places(mask[:, 1:], times), ((0, 0), (1, 0)), constant_values=WHOLE_VIDEO)
        return x, mask, places

    def _places(self, mask, times):
        times = ops.where(mask, times, UNKNOWN)
        refuse_outside(ops.where(times == UNKNOWN, 0, times), self.num_seconds, "feature_times")
        return ops.where(times == UNKNOWN, NO_TIME, times + FIRST_SECOND)

    def compute_output_spec(self, features, mask, times):
        shape = (features.shape[0], None if features.shape[1] is None else 1 + features.shape[1])
        kinds = ((*shape, self.dim), self.compute_dtype), (shape, "bool"), (shape, "int32")
        return tuple(keras.KerasTensor(*kind) for kind in kinds)


class GatedEmbedding(Layer):
    """A vector of unit length for each of `count` experts: (B, C) -> (B, `count`, `dim`).

    It computes y = W x + b and y * sigmoid(BN(V y)), each expert with its own W, b, V and batch normalisation
    (Miech et al. 2018, "Learning a Text-Video Embedding from Incomplete and Heterogeneous Data", section
    3.1).
    """

    def __init__(self, count: int, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.count = count
        self.dim = dim
        shape = (count, dim)
        self.projection = keras.layers.EinsumDense("bc,cnd->bnd", shape, bias_axes="nd")
        self.gate = keras.layers.EinsumDense("bnd,nde->bne", shape)
        self.norm = BatchNormalization()

    def build(self, x_shape):
        self.projection.build(x_shape)
        self.gate.build((x_shape[0], self.count, self.dim))
        self.norm.build((x_shape[0], self.count * self.dim))

    def call(self, x, training=None):
        y = self.projection(x)
        gate = ops.reshape(self.gate(y), (-1, self.count * self.dim))  # (B, N D)
        gate = ops.reshape(self.norm(gate, training=training), (-1, self.count, self.dim))  # (B, N, D)
        y = y * ops.sigmoid(gate)
        return ops.cast(unit(y), y.dtype)

    def compute_output_shape(self, x_shape):
        return (x_shape[0], self.count, self.dim)


# Gabeur et al. 2020, section 4, and the released configuration for MSR-VTT. tiny is this package's own.
_TINY = BERTConfig(8_000, 2, 64, 2, 128, pooler=False)
MMT.sizes = {
    "tiny": MMTConfig(_TINY, ("motion", "sound"), (32, 16), 30, 2, 64, 2, 128),
    "base": MMTConfig(),
}
