"""TransReID (He et al. 2021, "TransReID: Transformer-based Object Re-Identification"): a ViT whose vectors
find the same person or car again, in images of other cameras.

    patches, overlapping, + positions + camera --> blocks --+--> last block --> class token: the whole
                                                            |
                                                            +--> shuffled, in four parts --> another last
                                                                 block --> four class tokens: the parts

The camera's learned vector is added to all tokens. In the jigsaw the first patches move to the end, then
patches are dealt to groups, so that each part has patches from all over the image. `heads.Reidentifier` has
the neck.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Positive, Refusal, Whole
from keras_tfm.inputs import refuse_outside
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.positions import outside_is_nan
from keras_tfm.models.base import ConfiguredModel, Trace, growing_rates
from keras_tfm.models.vision.images import Side, image_input
from keras_tfm.models.vision.variant import VariantConfig, tokens_of
from keras_tfm.models.vision.vit import encoder_block


@dataclasses.dataclass(frozen=True)
class TransReIDConfig(VariantConfig):
    """The sizes of a `TransReID`.

    Args:
        stride: from one patch to the next, in pixels.
        num_cameras: how many cameras, or cameras times views, there are; 0 for no such input.
        camera_scale: multiplies the camera's vector.
        num_parts: how many local vectors there are; 0 for none, and no jigsaw.
        shift: of the jigsaw: this number less one of patches move to the end.
        num_groups: to how many groups patches are dealt.
    """

    image_size: Side | tuple[Side, Side] = (256, 128)
    stride: Side = 12
    num_cameras: Whole = 0
    camera_scale: Positive = 3.0
    num_parts: Whole = 4
    shift: Side = 5
    num_groups: Side = 2

    def __post_init__(self):
        super().__post_init__()
        rows, columns = self.grid
        if min(rows, columns) < 1:
            raise Refusal("patch_size", f"at most the image, {self.image_size}", self.patch_size)
        if self.num_parts and rows * columns % self.num_groups:
            raise Refusal("num_groups", f"a divisor of the {rows * columns} patches", self.num_groups)
        if self.num_parts and not max(self.shift - 1, self.num_parts) <= rows * columns:
            raise Refusal(
                "num_parts", f"at most the patches, {rows * columns}, as `shift` is", self.num_parts
            )

    @property
    def grid(self):
        """The (rows, columns) of patches."""
        sides = height_and_width(self.image_size), height_and_width(self.patch_size)
        return tuple((side - patch) // self.stride + 1 for side, patch in zip(*sides, strict=True))


class TransReID(ConfiguredModel):
    """Images, and the cameras that took them, in; vectors to compare out.

    Inputs: `images` (B, H, W, C), floating-point, and with `num_cameras` `camera` (B,), integers. Outputs:
    `sequence_output` (B, N + 1, D), the class token first, `pooled_output` (B, D), the class token, and with
    parts `local_outputs` (B, P, D), of the parts; patches that are left over belong to no part.

    >>> model = keras_tfm.models.TransReID.from_size("tiny", num_cameras=4)
    >>> outputs = model({"images": np.zeros((2, 64, 32, 3)), "camera": np.array([0, 3])})
    >>> outputs["pooled_output"].shape, outputs["local_outputs"].shape
    (TensorShape([2, 128]), TensorShape([2, 4, 128]))
    """

    config_class = TransReIDConfig

    def __init__(self, config: TransReIDConfig, name: str = "transreid", **kwargs: Any) -> None:
        images = image_input(config)
        inputs = {"images": images}
        convolution = Convolution(config.dim, config.patch_size, config.stride, 0, name="patch_embedding")
        _, x = tokens_of(config, convolution(images))
        if config.num_cameras:
            inputs["camera"] = keras.Input((), dtype="int32", name="camera")
            embedding = CameraEmbedding(config.num_cameras, config.camera_scale, name="cameras")
            x = embedding(x, inputs["camera"])
        trace, rates = Trace(), growing_rates(config.stochastic_depth, config.num_layers)
        blocks = [encoder_block(config, rate, f"block_{i}") for i, rate in enumerate(rates)]
        base = trace.run("encoder", blocks[:-1], x)
        x = LayerNormalization(config.epsilon, name="norm")(trace.run("encoder", blocks[-1:], base))
        outputs = {"sequence_output": x, "pooled_output": x[:, 0]}
        if config.num_parts:
            parts = _parts(config, base)  # (B P, L + 1, D)
            local = trace.run("local", [encoder_block(config, rates[-1], "local_block")], parts)
            local = LayerNormalization(config.epsilon, name="local_norm")(local[:, 0])
            outputs["local_outputs"] = ops.reshape(local, (-1, config.num_parts, config.dim))
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


def jigsaw(x, shift, num_groups):
    """The patches `x` (B, N, D), the first `shift` - 1 of them at the end, dealt to groups: the first of each
    group, the second of each, ... (He et al. 2021, section 3.2).
    """
    _, length, dim = x.shape
    x = ops.concatenate([x[:, shift - 1 :], x[:, : shift - 1]], axis=1)
    x = ops.reshape(x, (-1, num_groups, length // num_groups, dim))  # (B, G, N / G, D)
    return ops.reshape(ops.swapaxes(x, 1, 2), (-1, length, dim))


def _parts(config, x):
    """Each part of the patches after the class token of tokens `x` (B, N + 1, D): (B P, L + 1, D)."""
    count, patches = config.num_parts, jigsaw(x[:, 1:], config.shift, config.num_groups)
    length = patches.shape[1] // count
    patches = ops.reshape(patches[:, : count * length], (-1, count, length, config.dim))  # (B, P, L, D)
    token = ops.zeros_like(patches[:, :, :1]) + x[:, None, :1]  # (B, P, 1, D)
    return ops.reshape(ops.concatenate([token, patches], axis=2), (-1, length + 1, config.dim))


class CameraEmbedding(SameShape):
    """x + `scale` times the learned vector of each example's camera (He et al. 2021, eq. 3).

    Tokens `x` (B, N, D), and `camera` (B,), numbers below `count`. Another number is refused with a
    ValueError; a graph gives NaN for it.
    """

    def __init__(self, count: int, scale: float = 3.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.count = count
        self.scale = scale

    def build(self, x_shape, camera_shape=None):
        self.table = self.add_weight((self.count, x_shape[-1]), TRUNCATED.clone(), name="table")

    def call(self, x, camera):
        """(B, N, D), (B,) -> (B, N, D)."""
        refuse_outside(camera, self.count, "camera")
        vectors = ops.take(self.table, ops.clip(camera, 0, self.count - 1), axis=0)  # (B, D)
        vectors = self.scale * vectors + outside_is_nan(camera, self.count, vectors.dtype)
        return x + ops.cast(vectors, x.dtype)[:, None]


# He et al. 2021, section 4.1: ViT-B for persons, 256 x 128 pixels, plain and with the jigsaw; cameras are a
# data set's, and none here. tiny is this package's own.
TransReID.sizes = {
    "tiny": TransReIDConfig(
        (64, 32),
        patch_size=8,
        stride=6,
        num_layers=4,
        dim=128,
        num_heads=4,
        intermediate_dim=256,
    ),
    "B/16-plain": TransReIDConfig(num_parts=0, stride=16),
    "B/16": TransReIDConfig(),
}
