"""I3D (Carreira and Zisserman 2017, "Quo Vadis, Action Recognition? A New Model and the Kinetics Dataset").

Inception-v1 (Szegedy et al. 2015) with batch normalisation, whose square kernels and windows became cubes. So
its weights may come from a network of images, of which each kernel is repeated over time: `I3D.inflated`.

    videos -> 7x7x7 /2 -> pool /1,2,2 -> 1x1x1 -> 3x3x3 -> pool /1,2,2 -> 2 Inception blocks -> pool 3x3x3 /2
    -> 5 blocks -> pool 2x2x2 /2 -> 2 blocks -> means of windows

Padding is TensorFlow's "same" throughout, in which even sides have more after the map than before it.
"""

import dataclasses
from typing import Annotated, Any

import numpy as np
from keras import ops

from keras_tfm.configs import Between, Config, Rate, Refusal, Size
from keras_tfm.layers.chain import Chain, ParallelBlock
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.pooling import MaxPooling
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import Side, video_input

Branches = tuple[Size, Size, Size, Size, Size, Size]
DEPTHS: tuple[int, ...] = (2, 5, 2)  # Inception blocks per stage
POOLS = ((1, 3, 3), (3, 3, 3), (2, 2, 2))  # before each stage, with the stride 2 where a side is over 1
# Szegedy et al. 2015, table 1.
WIDTHS = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


@dataclasses.dataclass(frozen=True)
class TrunkConfig(Config):
    """The sizes of the network up to the last block of a stage.

    Args:
        num_channels: 3 of colours, 2 of optical flow.
        stem_dims: the widths of the three convolutions before the first block.
        dims: the six widths of each block: of the first branch's 1 x 1 x 1 convolution, of the two of the
            second and of the third branch, and of the one after the pooling.
        scales: whether the norms have scales: not in the authors' code, but in its ports to PyTorch.
    """

    num_frames: Annotated[int, Between(1, 2**14)] = 64
    image_size: Side | tuple[Side, Side] = 224
    num_channels: Size = 3
    stem_dims: tuple[Size, Size, Size] = (64, 64, 192)
    dims: tuple[Branches, ...] = WIDTHS
    scales: bool = True
    epsilon: Rate = 1e-3
    depths = DEPTHS  # a class attribute, not a field
    inflated = True

    def __post_init__(self):
        super().__post_init__()
        if len(self.dims) != sum(self.depths):
            raise Refusal("dims", f"the widths of {sum(self.depths)} blocks", f"of {len(self.dims)}")


@dataclasses.dataclass(frozen=True)
class I3DConfig(TrunkConfig):
    """The sizes of an `I3D`.

    Args:
        window: the (frames, rows, columns) of the last map over which features are averaged, at most the
            map's own.
        inflated: False for the network of images from which weights are inflated. It computes frame by frame.
    """

    window: tuple[Size, Size, Size] = (2, 7, 7)
    inflated: bool = True


class I3D(ConfiguredModel):
    """I3D: videos in, a vector per moment and one for the whole video out.

    Input: `videos` (B, F, H, W, C), floating-point, by the authors from -1 to 1. Outputs: `sequence_output`
    (B, T, D), the means of all windows of the last map, moment by moment, and `pooled_output` (B, D), the
    mean of these. A linear head on the one gives logits per moment, on the other their mean, which is what
    the authors train. `maps` are the last map of each stage, (B, frames, rows, columns, D).

    >>> sizes = dict(num_frames=16, image_size=32, stem_dims=(4, 4, 8), dims=[[4, 4, 4, 2, 2, 2]] * 9)
    >>> model = keras_tfm.models.I3D.from_size("rgb", **sizes)
    >>> model(np.ones((1, 16, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 1, 12])
    """

    config_class = I3DConfig

    def __init__(self, config: I3DConfig, name: str = "i3d", **kwargs: Any) -> None:
        videos, trace = video_input(config), Trace()
        maps = trunk(config, videos, trace)
        size = map(min, _over_time(config, config.window), maps[-1].shape[1:4])
        x = window_means(maps[-1], size)
        x = ops.reshape(x, (-1, np.prod(x.shape[1:4]), x.shape[4]))  # (B, T, D)
        outputs = {"sequence_output": x, "pooled_output": ops.mean(x, axis=1)}
        super().__init__(config, {"videos": videos}, outputs, trace, name=name, **kwargs)
        self.maps = maps

    def inflated(self, **changes):
        """A network of videos with the weights of this one of images: kernels are divided by their number of
        frames and repeated over time, so that a still video gives what its image gave, but near its first and
        last frames. `changes` replace fields of the configuration.

        Raises ValueError if this is a network of videos already.
        """
        if self.config.inflated:
            raise ValueError("`inflated` needs a network made with `inflated` False.")
        model = self.with_fresh_weights(**{"inflated": True, **changes})
        for ours, theirs in zip(model.weights, self.weights, strict=True):
            array = ops.convert_to_numpy(theirs)
            is_kernel = array.ndim == 5  # of one frame
            ours.assign(np.repeat(array, ours.shape[0], axis=0) / ours.shape[0] if is_kernel else array)
        return model


def trunk(config, videos, trace):
    """The last map of each stage, (B, frames, rows, columns, D); `trace` records the blocks as "encoder"."""
    first, second, third = config.stem_dims
    x = normalized(config, first, 7, 2, name="stem_0")(videos)
    x = pooling(config, (1, 3, 3), name="stem_pooling")(x)
    x = normalized(config, second, 1, name="stem_1")(x)
    x = normalized(config, third, 3, name="stem_2")(x)
    maps, dims = [], iter(config.dims)
    for stage, depth in enumerate(config.depths):
        x = pooling(config, POOLS[stage], name=f"stage_{stage}_pooling")(x)
        names = [f"stage_{stage}_block_{i}" for i in range(depth)]
        x = trace.run("encoder", [inception_block(config, next(dims), name) for name in names], x)
        maps.append(x)
    return maps


def window_means(x, size):
    """The means of all windows of this `size` in maps (B, frames, rows, columns, D), one axis after the
    other: TensorFlow 2.21 has no average over videos in float16 on CPUs.
    """
    for axis, length in enumerate(size, start=1):
        before, count = (slice(None),) * axis, x.shape[axis] - length + 1
        x = sum(x[(*before, slice(i, i + count))] for i in range(length)) / length
    return x


def normalized(config, dim, side, stride=1, **options):
    """A convolution with cubes of this `side`, its norm and a ReLU; without a bias."""
    norm = BatchNormalization(config.epsilon, scale=config.scales)
    kernel, steps = _over_time(config, (side,) * 3), _over_time(config, (stride,) * 3)
    return Convolution(dim, kernel, steps, "same", norm=norm, activation="relu", **options)


def pooling(config, size, stride=None, **options):
    """A maximum over windows of this `size`, by default with the stride 2 where a side is over 1."""
    steps = tuple(min(side, 2) if stride is None else stride for side in size)
    return MaxPooling(_over_time(config, size), _over_time(config, steps), "same", **options)


def _over_time(config, sides):
    """The `sides` of a cube, or of one frame of it."""
    return sides if config.inflated else (1, *sides[1:])


def inception_block(config, dims, name):
    """A block whose branches have these six widths."""
    alone, before, square, before_second, second, pooled = dims
    branches = [
        normalized(config, alone, 1, name="pointwise"),
        Chain([normalized(config, before, 1), normalized(config, square, 3)], name="first"),
        Chain([normalized(config, before_second, 1), normalized(config, second, 3)], name="second"),
        Chain([pooling(config, (3, 3, 3), 1), normalized(config, pooled, 1)], name="pooled"),
    ]
    return ParallelBlock(branches, name=name)


# Carreira and Zisserman 2017: 64 frames of 224 x 224, as colours and as optical flow. tiny, of a quarter of
# the widths, is this package's own.
I3D.sizes = {
    "tiny": I3DConfig(
        num_frames=16,
        image_size=64,
        stem_dims=(16, 16, 48),
        dims=tuple(map(tuple, (np.array(WIDTHS) // 4).tolist())),
        window=(2, 2, 2),
    ),
    "rgb": I3DConfig(),
    "flow": I3DConfig(num_channels=2),
}
