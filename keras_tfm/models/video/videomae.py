"""VideoMAE (Tong et al. 2022, "VideoMAE: Masked Autoencoders are Data-Efficient Learners for Self-Supervised
Video Pre-Training").

A ViT whose tokens are tubelets, without a class token, on positions that are sines. Its attention has biases
of queries and values, and none of keys. `heads.MaskedVideoAutoencoder` pre-trains it: it reads a tenth of the
tubelets, at the same places of all moments.
"""

import dataclasses
from typing import Annotated, Any, Literal

import keras
from keras import ops

from keras_tfm.configs import Between, Size
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_masking import PatchMasking
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.positions import SineTable
from keras_tfm.layers.tubelets import TubeletEmbedding
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import video_input
from keras_tfm.models.vision.vit import PatchesConfig, ViT
from keras_tfm.training.weights import assign_by_path, by_path


@dataclasses.dataclass(frozen=True)
class VideoMAEConfig(PatchesConfig):
    """The sizes of a `VideoMAE`.

    Args:
        tubelet_length: the frames of a tubelet.
        qv_bias: whether queries and values have biases.
        pooling: "mean" for fine-tuning: the pooled output is the mean of the last block's output, and a
            classifier normalises it; "first" as in pre-training: the output is normalised, and the first
            token is pooled.
    """

    num_frames: Annotated[int, Between(1, 2**14)] = 16
    tubelet_length: Size = 2
    qv_bias: bool = True
    pooling: Literal["mean", "first"] = "mean"

    @property
    def qkv_bias(self):  # type: ignore[override]
        """The projections that have biases."""
        return ("query", "value") if self.qv_bias else False

    @property
    def tubelet_size(self):
        """The (frames, height, width) of a tubelet."""
        return (self.tubelet_length, *height_and_width(self.patch_size, "patch_size"))


class VideoMAE(ConfiguredModel):
    """VideoMAE's encoder: videos in, hidden states out.

    Input: `videos` (B, F, H, W, C), floating-point. Outputs: `sequence_output` (B, N, D), the tubelets moment
    by moment and row by row, and `pooled_output` (B, D).

    >>> sizes = dict(num_frames=4, image_size=32, num_layers=1, dim=16, num_heads=2, intermediate_dim=32)
    >>> model = keras_tfm.models.VideoMAE.from_size("B/16", **sizes)
    >>> model(np.ones((1, 4, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 8, 16])
    """

    config_class = VideoMAEConfig

    def __init__(self, config: VideoMAEConfig, name: str = "videomae", **kwargs: Any) -> None:
        videos = video_input(config)
        x = TubeletEmbedding(config.dim, config.tubelet_size, name="tubelets")(videos)
        _, moments, rows, columns, dim = x.shape
        tokens = SineTable(name="position")(ops.reshape(x, (-1, moments * rows * columns, dim)))  # (B, N, D)
        trace = Trace()
        x = trace.run("encoder", ViT.encoder(config), tokens)
        norm = LayerNormalization(config.epsilon, name="norm") if config.pooling == "first" else None
        x = x if norm is None else norm(x)
        pooled = ops.mean(x, axis=1) if norm is None else ops.take(x, 0, axis=1)
        outputs = {"sequence_output": x, "pooled_output": pooled}
        super().__init__(config, {"videos": videos}, outputs, trace, name=name, **kwargs)
        self.grid = moments, rows * columns  # of tubelets: moments, and places at each
        self.tokens = tokens
        self.norm = norm

    def visible(self, mask_ratio):
        """(Inputs, the states (B, M, D) of visible tubelets alone) of this model's layers.

        The input `noise` has a number for each place: where it is largest, the share `mask_ratio` of the
        places is hidden at all moments. The tubelets of a moment are sorted by their numbers.
        """
        moments, places = self.grid
        noise = keras.Input((places,), name="noise")
        x = ops.reshape(self.tokens, (-1, places, self.config.dim))  # (B moments, places, D)
        x = PatchMasking(mask_ratio, name="masking")(x, ops.repeat(noise, moments, axis=0))
        x = ops.reshape(x, (-1, moments * x.shape[1], self.config.dim))  # (B, M, D)
        for block in self.blocks["encoder"]:
            x = block(x)
        inputs = {**self.input, "noise": noise}
        return inputs, x if self.norm is None else self.norm(x)

    def encoder(self, **changes):
        """A `VideoMAE` with this one's weights and these `changes` of its configuration, for fine-tuning."""
        model = self.with_fresh_weights(**changes)
        assign_by_path(model, by_path(self))
        return model


# Tong et al. 2022, with the sizes of ViT.
_BASE = VideoMAEConfig()
VideoMAE.sizes = {
    "S/16": VideoMAEConfig(dim=384, num_heads=6, intermediate_dim=1536),
    "B/16": _BASE,
    "L/16": VideoMAEConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096),
    "H/16": VideoMAEConfig(num_layers=32, dim=1280, num_heads=16, intermediate_dim=5120),
}
