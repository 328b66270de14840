"""The hybrid ViT: a ViT on the map of a residual network (Dosovitskiy et al. 2021, "An Image is Worth 16x16
Words").

The residual network is the authors': kernels are standardised and groups of features are normalised, as in
BiT, but the norm follows each convolution, as in ResNet. Convolutions and pooling pad like TensorFlow's
"same". Weights for several stems come from Steiner et al. 2022, "How to train your ViT?".
"""

import dataclasses
import math

import keras

from keras_tfm.configs import Depth, Size
from keras_tfm.layers.bottleneck import ShortcutBlock
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import StandardizedConv2D
from keras_tfm.layers.normalization import GroupNormalization
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.pooling import MaxPooling
from keras_tfm.models.vision.images import Side
from keras_tfm.models.vision.vit import ViT, ViTConfig


@dataclasses.dataclass(frozen=True)
class HybridViTConfig(ViTConfig):
    """The sizes of a `HybridViT`.

    Args:
        patch_size: the side of a patch, in cells of the map.
        stem_dim: the width of the stem.
        stage_dims: the width of each stage of the residual network.
        stage_depths: the number of blocks of each stage.
        num_groups: the number of groups of features that are normalised separately.
    """

    patch_size: Side | tuple[Side, Side] = 1
    stem_dim: Size = 64
    stage_dims: tuple[Size, ...] = (256, 512, 1024)
    stage_depths: tuple[Depth, ...] = (3, 4, 9)
    num_groups: Size = 32

    def __post_init__(self):
        super().__post_init__()
        if len(self.stage_dims) != len(self.stage_depths):
            raise ValueError(
                "`stage_dims` and `stage_depths` must have a number for each stage; they are "
                f"{self.stage_dims} and {self.stage_depths}."
            )
        widths = (self.stem_dim, *(dim / 4 for dim in self.stage_dims))
        if any(width % self.num_groups for width in widths):
            raise ValueError(
                "`num_groups` must divide `stem_dim` and a quarter of each of `stage_dims`, "
                f"{self.stem_dim} and {self.stage_dims}; it is {self.num_groups}."
            )

    @property
    def map_size(self):
        """The (height, width) of the map that is cut into patches."""
        halvings = 2 + max(0, len(self.stage_dims) - 1)
        return tuple(
            math.ceil(side / 2**halvings) for side in height_and_width(self.image_size, "image_size")
        )


class HybridViT(ViT):
    """A `ViT` whose patches are the cells of a residual network's map, such as (B, H / 16, W / 16, 1024).

    >>> sizes = dict(image_size=32, num_layers=1, dim=16, num_heads=2,
    ...              stem_dim=32, stage_dims=(128,), stage_depths=(1,))
    >>> model = keras_tfm.models.HybridViT.from_size("R50+B/16", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 65, 16])
    """

    config_class = HybridViTConfig

    @classmethod
    def embed(cls, config, images):
        return super().embed(config, cls.feature_map(config, images))

    @classmethod
    def feature_map(cls, config, images):
        """The residual network's map for images (B, H, W, C)."""
        x = Chain(_normalized(config, config.stem_dim, 7, 2, "relu"), name="stem")(images)
        x = MaxPooling(3, 2, "same", name="stem_pooling")(x)
        for stage, depth in enumerate(config.stage_depths):
            for index in range(depth):
                x = cls.residual_block(config, stage, index)(x)
        return x

    @classmethod
    def residual_block(cls, config, stage, index):
        """Block number `index` of a stage; the first one changes width and size."""
        dim, stride = config.stage_dims[stage], 2 if stage and not index else 1
        branch = [
            *_normalized(config, dim // 4, 1, 1, "relu"),
            *_normalized(config, dim // 4, 3, stride, "relu"),
            *_normalized(config, dim, 1),
        ]
        shortcut = None if index else Chain(_normalized(config, dim, 1, stride))
        name = f"stage_{stage}_block_{index}"
        return ShortcutBlock(Chain(branch), shortcut, activation="relu", name=name)

    @classmethod
    def grid_of(cls, config):
        return super().grid_of(dataclasses.replace(config, image_size=config.map_size))


def _normalized(config, dim, size, stride=1, activation=None):
    """A convolution and a norm, and an activation if there is one: a list of layers."""
    convolution = StandardizedConv2D(dim, size, strides=stride, padding="same", use_bias=False)
    norm = GroupNormalization(config.num_groups, epsilon=1e-5)
    return [convolution, norm] + ([keras.layers.Activation(activation)] if activation else [])


# R50+B: Dosovitskiy et al. 2021. The others: Steiner et al. 2022. The names are the published ones, although
# a patch of the first, 8 x 8 cells on a map of a quarter of the image's side, covers 32 pixels.
_BASE = HybridViTConfig()
_STAGES = (256, 512, 1024, 2048)
HybridViT.sizes = {
    "R+Ti/16": HybridViTConfig(
        patch_size=8, dim=192, num_heads=3, intermediate_dim=768, stage_dims=(), stage_depths=()
    ),
    "R26+S/32": HybridViTConfig(
        dim=384, num_heads=6, intermediate_dim=1536, stage_dims=_STAGES, stage_depths=(2, 2, 2, 2)
    ),
    "R50+B/16": _BASE,
    "R50+L/32": HybridViTConfig(
        num_layers=24,
        dim=1024,
        num_heads=16,
        intermediate_dim=4096,
        stage_dims=_STAGES,
        stage_depths=(3, 4, 6, 3),
    ),
}
