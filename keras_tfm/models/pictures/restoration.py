"""What models of several tasks of restoration share: the convolutions before and after a body, one pair for
each task (Lim et al. 2017, "Enhanced Deep Residual Networks for Single Image Super-Resolution", section 3.3).
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import keras

from keras_tfm.configs import Between, Config, Refusal, Size
from keras_tfm.layers.blocks import Residual
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.patches import PixelShuffle
from keras_tfm.layers.resizing import resize_bicubic
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.training.model import Model

Scale = Annotated[int, Between(1, 8)]
MEAN_COLOUR = (0.4488, 0.4371, 0.4040)  # of DIV2K's pictures, on which both families were published


@dataclasses.dataclass(frozen=True)
class RestorerConfig(Config):
    """The tasks of a `Restorer`, and its channels.

    Args:
        tasks: the names of the tasks.
        scales: how many times longer the sides of each task's outputs are: 1, 3, or a power of 2.
        num_features: the channels of heads and tails.
        mean: the mean colour, which is subtracted before, and added after; for pixels from 0 to 1.
    """

    tasks: tuple[str, ...] = ("x2", "x3", "x4")
    scales: tuple[Scale, ...] = (2, 3, 4)
    num_features: Size = 64
    mean: tuple[float, ...] = MEAN_COLOUR

    def __post_init__(self):
        super().__post_init__()
        if not self.tasks or len({*self.tasks}) < len(self.tasks) or len(self.tasks) != len(self.scales):
            raise Refusal("tasks", "different names, one for each of `scales`", self.tasks)
        if any(scale & (scale - 1) and scale != 3 for scale in self.scales):
            raise Refusal("scales", "1, 3 or powers of 2", self.scales)


class Restorer(ConfiguredModel):
    """A family whose outputs are the images of its `config.tasks`. Abstract.

    Each task has convolutions before and after the `body`, a function of a map and the task's name.
    """

    def __init__(
        self, config: RestorerConfig, images: Any, trace: Trace, body: Callable, **kwargs: Any
    ) -> None:
        outputs = {}
        for task, scale in zip(config.tasks, config.scales, strict=True):
            x = head_of(config, task)(images - mean_of(config, images))
            x = x + body(x, task)
            y = tail_of(config, scale, task)(x)
            outputs[task] = y + mean_of(config, y)
        super().__init__(config, {"images": images}, outputs, trace, **kwargs)

    def for_task(self, task: str) -> Model:
        """A model of the same weights from `images` to the images of one `task`; the others are not computed.

        Raises ValueError for an unknown task.
        """
        if task not in self.output:
            raise ValueError(f"`task` must be one of {', '.join(self.output)}; it is {task!r}.")
        return Model(self.input, self.output[task], name=f"{self.name}_{task}")


def beyond_bicubic(model: Restorer, task: str, images: Any) -> Any:
    """`images` (B, h, w, C) enlarged bicubically, plus what the model's output for the `task` differs in from
    the mean colour: (B, scale h, scale w, C). So the network learns the difference alone (Kim et al. 2016,
    "Accurate Image Super-Resolution Using Very Deep Convolutional Networks", section 3.2).
    """
    scale = model.config.scales[model.config.tasks.index(task)]
    enlarged = resize_bicubic(images, [scale * side for side in images.shape[1:3]], smooths=True)
    y = model.for_task(task)(images)
    return enlarged + keras.ops.cast(y - mean_of(model.config, y), enlarged.dtype)


def head_of(config, task):
    """The convolutions before the body: images (B, H, W, C) -> maps."""
    width = config.num_features
    blocks = [residual_of(width, 5) for _ in range(2)]
    return Chain([Convolution(width), *blocks], name=f"{task}_head")


def residual_of(width, kernel_size=3, name=None):
    """Two convolutions of maps in a residual."""
    layers = [Convolution(width, kernel_size, activation="relu"), Convolution(width, kernel_size)]
    return Residual(Chain(layers), name=name)


def tail_of(config, scale, task):
    """The convolutions after the body: maps -> images whose sides are `scale` times as long."""
    layers: list[keras.layers.Layer] = []
    for factor in steps_of(scale):
        layers += [Convolution(factor**2 * config.num_features), PixelShuffle(factor)]
    return Chain([*layers, Convolution(len(config.mean))], name=f"{task}_tail")


def steps_of(scale):
    """The factors of the steps in which a tail enlarges its map."""
    return [3] if scale == 3 else [2] * (scale.bit_length() - 1)


def mean_of(config: Any, images: Any) -> Any:
    """The configuration's mean colour, (C,), in the images' dtype."""
    return keras.ops.convert_to_tensor(config.mean, images.dtype)
