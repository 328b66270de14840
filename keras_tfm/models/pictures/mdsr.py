"""MDSR (Lim et al. 2017, "Enhanced Deep Residual Networks for Single Image Super-Resolution", section 3.3):
residual convolutions without norms, which several tasks of image restoration share.

    images -> head of the task -> blocks -> a map, added to the head's -> tail of the task

With one task it is nearly EDSR, of the same paper. In addition to the paper's, tasks may keep the size. Each
task has a first and a last convolution of its own, as in IPT. Architecture only: no weights are read.
"""

import dataclasses
from typing import Any

import keras

from keras_tfm.configs import Depth
from keras_tfm.layers.blocks import Block
from keras_tfm.layers.convolution import Convolution
from keras_tfm.models.base import Trace
from keras_tfm.models.pictures.restoration import (
    Restorer,
    RestorerConfig,
    residual_of,
)


@dataclasses.dataclass(frozen=True)
class MDSRConfig(RestorerConfig):
    """The sizes of an `MDSR`.

    Args:
        num_layers: the number of blocks that all tasks share.
    """

    num_layers: Depth = 80


class MDSR(Restorer):
    """Degraded images of any size in, restored images out, for each task.

    Input: `images` (B, H, W, C), floating-point, from 0 to 1. Outputs, by the names of the tasks: images
    (B, scale H, scale W, C), which may leave that range a little. `for_task(name)` computes one of them.

    >>> model = keras_tfm.models.MDSR.from_size("tiny")
    >>> model.for_task("x2")(np.zeros((1, 12, 10, 3))).shape
    TensorShape([1, 24, 20, 3])
    """

    config_class = MDSRConfig

    def __init__(self, config: MDSRConfig, name: str = "mdsr", **kwargs: Any) -> None:
        images, trace = keras.Input((None, None, len(config.mean)), name="images"), Trace()
        blocks = [_block(config, f"block_{i}") for i in range(config.num_layers)]
        last = Convolution(config.num_features, name="convolution")

        def body(x, task):
            return last(trace.run("blocks", blocks, x))

        super().__init__(config, images, trace, body, name=name, **kwargs)


def _block(config, name):
    return Block({"convolutions": residual_of(config.num_features)}, name=name)


# Lim et al. 2017, table 1: 3.2 and 8.0 million weights. small and tiny are this package's own.
MDSR.sizes = {
    "tiny": MDSRConfig(("x2", "denoise"), (2, 1), num_layers=2, num_features=8),
    "small": MDSRConfig(num_layers=4, num_features=16),
    "baseline": MDSRConfig(num_layers=16),
    "base": MDSRConfig(),
}
