"""What pyramids have in common: stages in a row, whose maps become smaller and wider."""

import abc

from keras import ops

from keras_tfm.layers.patches import flatten_map
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import image_input


class Pyramid(ConfiguredModel, abc.ABC):
    """A model of images in stages. Abstract: a family defines `stage`, and `stem` and `last` if it needs
    them.

    Input: `images` (B, H, W, C), floating-point. Outputs of the last stage: `sequence_output` (B, N, D), the
    cells of its map row by row, and `pooled_output` (B, D), their mean. `hidden_states` are maps (B, rows,
    columns, D): the input of the first block and the output of each. `maps` are the last map of each stage,
    before `last`, for a detector or a decoder. `depths` of the configuration has one entry per stage.
    """

    def __init__(self, config, name=None, **kwargs):
        images = image_input(config)
        trace, maps = Trace(), [self.stem(config, images)]
        for stage in range(len(config.depths)):
            maps.append(trace.run("encoder", self.stage(config, stage), maps[-1]))
        x = flatten_map(self.last(config, maps[-1]))
        outputs = {"sequence_output": x, "pooled_output": ops.mean(x, axis=1)}
        name = name or type(self).__name__.lower()
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)
        self.maps = maps[1:]

    @classmethod
    def stem(cls, config, images):
        """The input of the first stage."""
        return images

    @classmethod
    @abc.abstractmethod
    def stage(cls, config, stage):
        """The layers of the stage with this number, blocks and others."""

    @classmethod
    def last(cls, config, x):
        """The last stage's map in the form of the outputs, for example normalised."""
        return x
