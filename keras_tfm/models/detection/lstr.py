"""LSTR of Liu et al. 2021, "End-to-end Lane Shape Prediction with Transformers": DETR for lanes, which are
curves.

A narrow ResNet, two blocks of encoder and of decoder, and a query for each lane; a `heads.LaneDetector`
predicts the curves. Deviates from the authors' code in batch normalisation, which learns everywhere: theirs
does not in the stem.
"""

import dataclasses

from keras_tfm.configs import Depth, Heads, Rate, Size
from keras_tfm.models.detection.base import LearnedQueries, SineWidth
from keras_tfm.models.detection.detr import DETR, DETRConfig
from keras_tfm.models.vision.images import Side


@dataclasses.dataclass(frozen=True)
class LSTRConfig(DETRConfig):
    """`DETRConfig`, with the sizes of a `LSTR`; `image_size` is (height, width)."""

    image_size: Side | tuple[Side, Side] = (360, 640)
    backbone_config: dict = dataclasses.field(
        default_factory=lambda: {
            "stem_dim": 16,
            "dims": (16, 32, 64, 128),
            "depths": (1, 2, 2, 2),
            "block": "basic",
        }
    )
    frozen_norms: bool = False
    num_queries: LearnedQueries = 7
    dim: SineWidth = 32
    num_layers: Depth = 2
    num_heads: Heads = 2
    intermediate_dim: Size = 128
    dropout: Rate = 0.1


class LSTR(DETR):
    """Images of a road in, one vector for each lane query out.

    Inputs and outputs as of `DETR`.

    >>> model = keras_tfm.models.LSTR.from_size("base", image_size=(90, 160))
    >>> model({"images": np.zeros((1, 90, 160, 3))})["decoder_sequence_output"].shape
    TensorShape([1, 7, 32])
    """

    config_class = LSTRConfig

    def __init__(self, config: LSTRConfig, name: str = "lstr", **kwargs) -> None:
        super().__init__(config, name, **kwargs)


# Liu et al. 2021, section 4, and the authors' code. tiny is this package's own.
LSTR.sizes = {
    "tiny": LSTRConfig(
        (90, 160),
        backbone_config={"stem_dim": 16, "dims": (32, 64, 128), "depths": (1, 1, 1), "block": "basic"},
        dim=64,
        num_heads=4,
        dropout=0.0,
    ),
    "base": LSTRConfig(),
}
