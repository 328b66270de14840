"""TrTr of Zhao et al. 2021, "TrTr: Visual Tracking with Transformer": DETR's Transformer between two images.

    template cells ---> encoder --+
                                  v
    search cells ---> decoder (attention, then cross-attention) ---> a heat map, and a box for each cell

The queries of the decoder are the cells of the searched image, each with its position. A
`heads.HeatmapDetector` predicts from them. Deviates from the authors' model in that the last stage of the
backbone is not dilated.
"""

import dataclasses

from keras_tfm.configs import Depth
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.detection.base import EPSILON
from keras_tfm.models.tracking.siamese import TINY, SiameseConfig, SiameseTracker, attending_block


@dataclasses.dataclass(frozen=True)
class TrTrConfig(SiameseConfig):
    """`SiameseConfig`, with `num_layers` of the encoder and `num_decoder_layers`."""

    num_layers: Depth = 1
    num_decoder_layers: Depth = 1


class TrTr(SiameseTracker):
    """A template and an image to search in, the vectors of its cells out.

    Inputs and `sequence_output` (B, N, D) as of `SiameseTracker`, the decoder's states after the last norm;
    also `encoder_sequence_output` (B, n, D), of the template's cells.

    >>> model = keras_tfm.models.TrTr.from_size("tiny")
    >>> images = {"template_images": np.zeros((1, 32, 32, 3)), "images": np.zeros((1, 64, 64, 3))}
    >>> model(images)["sequence_output"].shape
    TensorShape([1, 64, 64])
    """

    config_class = TrTrConfig

    @classmethod
    def fused(cls, config, trace, template, search):
        encoder = [
            attending_block(config, f"encoder_block_{i}", "attention") for i in range(config.num_layers)
        ]
        decoder = [
            attending_block(config, f"decoder_block_{i}", "attention", "context_attention")
            for i in range(config.num_decoder_layers)
        ]
        tensors = {"mask": template.mask, "position": template.position}
        encoded = trace.run("encoder", encoder, template.x, attention=tensors)
        x = trace.run(
            "decoder",
            decoder,
            search.x,
            attention={"mask": search.mask, "position": search.position},
            context_attention={"position": search.position, **template.as_context(encoded)},
        )
        x = LayerNormalization(EPSILON, name="decoder_norm")(x)
        return {"sequence_output": x, "encoder_sequence_output": encoded}


# Zhao et al. 2021, section 4.1: one layer of each. tiny is this package's own.
TrTr.sizes = {"tiny": TrTrConfig(**TINY), "50": TrTrConfig()}
