"""CLIP4Clip of Luo et al. 2021, "CLIP4Clip: An Empirical Study of CLIP for End to End Video Clip Retrieval".

CLIP's towers for clips and texts: every frame is an image, and the mean of the frames' vectors stands for the
clip (the paper's "meanP"). With blocks over the frames, whose output is added to the frames' vectors, it
depends on their order ("seqTransf"). Both give vectors, which an index can hold; the paper's third
similarity, a network that reads each pair of a clip and a text, gives none: `heads.CrossMatcher`.
"""

import dataclasses
import functools
from typing import Any, Self

import keras
from keras import ops

from keras_tfm.configs import Length, Size, Whole
from keras_tfm.layers.base import Layer
from keras_tfm.layers.masks import masked_mean
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.multimodal.clip import (
    CLIP,
    CLIPConfig,
    image_states,
    positions_of,
    projected,
    text_tower,
)
from keras_tfm.models.multimodal.dual_encoder import DualEncoder, UnitLength, tower_blocks
from keras_tfm.models.vision.images import video_input
from keras_tfm.models.vision.stem import Stem, check_stem, convolved, stride_of
from keras_tfm.training.weights import assign_by_path, by_path

HEAD_DIM = 64  # of the blocks over the frames, as everywhere in CLIP


@dataclasses.dataclass(frozen=True)
class CLIP4ClipConfig(CLIPConfig):
    """As `CLIPConfig`, for clips.

    Args:
        num_frames: the frames of a clip.
        num_frame_layers: the blocks over the frames; 0 takes their mean alone.
        max_frames: the positions that these blocks know.
        position_stddev: the spread of the initial positions of patches and of frames.
        stem: the (width, stride) of convolutions, 3 x 3, that each frame passes before it is cut into
            patches; none in the paper. See `ViViTConfig`.
    """

    num_frames: Size = 12
    num_frame_layers: Whole = 0
    max_frames: Length = 77
    stem: Stem = ()

    def __post_init__(self):
        super().__post_init__()
        check_stem(self.stem, "patch_size", height_and_width(self.patch_size, "patch_size"))
        if self.num_frames > self.max_frames:
            raise ValueError(
                f"`num_frames` must be at most `max_frames`, {self.max_frames}; it is {self.num_frames}."
            )

    @property
    def num_layers(self):
        return super().num_layers + self.num_frame_layers

    @property
    def frame_dim(self):
        return self.embedding_dim

    @property
    def num_frame_heads(self):
        return max(1, self.embedding_dim // HEAD_DIM)

    @property
    def frame_intermediate_dim(self):
        return 4 * self.embedding_dim


class CLIP4Clip(DualEncoder):
    """An encoder of clips and one of texts with outputs in one vector space.

    Inputs: `videos` (B, F, H, W, C), floating-point, `frame_mask` (B, F), False for frames that only fill a
    shorter clip up, `token_ids` (B, T) and `padding_mask` (B, T). Outputs: `video_sequence_output` (B, F, E),
    the frames' vectors of unit length, `video_embeddings` (B, E), their mean at unit length, 0 for a clip
    without frames, and the texts' as of `CLIP`. `video` and `text` are the two encoders.

    >>> sizes = dict(num_image_layers=1, num_text_layers=1, num_frames=3)
    >>> model = keras_tfm.models.CLIP4Clip.from_size("tiny", **sizes)
    >>> inputs = {"videos": np.zeros((2, 3, 32, 32, 3)), "token_ids": np.ones((5, 8), "int32")}
    >>> keras_tfm.heads.Contrastive(model)(inputs).shape
    TensorShape([2, 5])
    """

    config_class = CLIP4ClipConfig
    sides = ("video", "text")

    def __init__(self, config: CLIP4ClipConfig, name: str = "clip4clip", **kwargs: Any) -> None:
        super().__init__(config, _video, text_tower, name=name, **kwargs)

    @classmethod
    def around(cls, clip: CLIP, num_frames: int = 12, num_frame_layers: int = 0) -> Self:
        """A model with the weights of `clip`. The blocks over the frames, and their positions, begin as the
        texts' first ones where these have the same shapes.
        """
        sizes = {"num_frames": num_frames, "num_frame_layers": num_frame_layers}
        model = cls(cls.config_class(**dataclasses.asdict(clip.config) | sizes), dtype=clip.dtype_policy)
        given, shapes = by_path(clip), {path: weight.shape for path, weight in by_path(model).items()}
        of_frames = {
            path.replace("text_embedding/position", "frame_position").replace("text_", "frame_"): weight
            for path, weight in given.items()
        }
        alike = {path: x for path, x in of_frames.items() if x.shape == shapes.get(path)}
        assign_by_path(model, alike | given)
        return model

    @functools.cached_property
    def video(self) -> keras.Model:
        """The clips' tower alone: `sequence_output` and `embeddings` of `videos` and `frame_mask`."""
        return self.tower("video")


def _video(config, trace):
    frames, videos = config.num_frames, video_input(config)
    mask = keras.Input((frames,), dtype="bool", name="frame_mask")
    images = ops.reshape(videos, (-1, *videos.shape[2:]))  # (B F, H, W, C)
    sides = [side // stride_of(config.stem) for side in height_and_width(config.patch_size)]
    _, pooled = image_states(config, trace, convolved(config.stem, images), sides)
    x = ops.reshape(projected(config, pooled, "image"), (-1, frames, config.embedding_dim))  # (B, F, E)
    if config.num_frame_layers:
        placed = PositionEmbedding(config.max_frames, positions_of(config), name="frame_position")(x)
        blocks = tower_blocks(config, "frame")
        x = x + trace.run("frame", blocks, placed, attention={"mask": mask})
    x = UnitLength(name="frame_embeddings")(x)
    embeddings = UnitLength(name="video_embeddings")(MeanFrame(name="mean_frame")(x, mask))
    outputs = {"sequence_output": x, "embeddings": embeddings}
    return {"videos": videos, "frame_mask": mask}, outputs


class MeanFrame(Layer):
    """The mean (B, E) of the vectors `x` (B, F, E) where the `mask` (B, F) is True."""

    def call(self, x, mask):
        return ops.cast(masked_mean(x, mask), x.dtype)

    def compute_output_shape(self, x_shape, mask_shape=None):
        return (x_shape[0], x_shape[-1])


# Luo et al. 2021, section 4.2: 12 frames, one a second, and 4 blocks over them. tiny is this package's own.
CLIP4Clip.sizes = {
    f"{size}{name}": CLIP4ClipConfig(**dataclasses.asdict(config), num_frame_layers=layers)
    for size, config in CLIP.sizes.items()
    if size in ("tiny", "B/32", "B/16")
    for name, layers in (("", 0), ("-seqTransf", 4))
}
