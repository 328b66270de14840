"""SMCA of Gao et al. 2021, "Fast Convergence of DETR with Spatially Modulated Co-Attention": DETR whose
queries look around a centre of their own.

    query + state ---> norm ---> centre (the first block's alone), and of each head its offset and scales
                                    |
    query . cell  ---> score  + log Gaussian(cell) ---> softmax over the cells

A query's centre is also the reference from which its box is measured. Architecture only: there are no weights
to read. The paper's variant with several maps is missing. A centre is a share of the cells that are no
padding; the authors' is a share of the image's sides over 32, which is the same for sides that 32 divides.
"""

import dataclasses
from typing import Annotated, Any

from keras import ops

from keras_tfm.configs import Between, Positive
from keras_tfm.layers.attention.gaussian import GaussianBias
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.detection.base import (
    EPSILON,
    LearnedQueries,
    SetDetector,
    SetDetectorConfig,
    about_queries,
    detr_block,
    encoded_map,
    outputs_of,
    references_of,
    start_of,
)
from keras_tfm.models.detection.detr import sizes_with_300_queries


@dataclasses.dataclass(frozen=True)
class SMCAConfig(SetDetectorConfig):
    """`SetDetectorConfig`, with 300 queries by default; `num_scales` and `smoothness` are as in
    `GaussianBias`.
    """

    num_queries: LearnedQueries = 300
    num_scales: Annotated[int, Between(0, 2)] = 2
    smoothness: Positive = 8.0


class SMCA(SetDetector):
    """Images in, one vector for each object query out, and where it looks.

    Inputs and outputs as of `DETR`; beside them `references` (B, 1, Q, 4), the logits of a query's centre
    (x, y), and zeros, to which a head adds the logits of its boxes.

    >>> model = keras_tfm.models.SMCA.from_size("tiny", image_size=32)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["references"].shape
    TensorShape([1, 1, 16, 4])
    """

    config_class = SMCAConfig

    def __init__(self, config: SMCAConfig, name: str = "smca", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        encoder = encoded_map(config, backbone, pixel_mask, trace)
        num_layers, num_heads, _ = config.decoder_sizes
        decoder = [detr_block(config, "decoder", i) for i in range(num_layers)]

        queries = LearnedVectors(config.num_queries, name="decoder_queries")(encoder.context["context"])
        x = ops.zeros_like(queries)
        for i, block in enumerate(decoder):
            content = LayerNormalization(EPSILON, name=f"decoder_place_norm_{i}")(x + queries)
            if i == 0:
                mlp = [Dense(config.dim, "relu"), Dense(config.dim, "relu"), Dense(2)]
                references = Chain(mlp, name="decoder_references")(content)  # (B, Q, 2)
                places = ops.sigmoid(in_float32(references))
                centres = places * ops.cast(_extent(encoder.cells), places.dtype)
            scales = config.num_scales, config.smoothness
            bias = GaussianBias(num_heads, encoder.grid, *scales, name=f"decoder_bias_{i}")(content, centres)
            tensors = about_queries(queries, {**encoder.context, "bias": bias})
            x = trace.run("decoder", [block], x, **tensors)
        outputs = {**outputs_of(trace), "references": references_of(references)}
        super().__init__(config, backbone, pixel_mask, outputs, trace, name=name, **kwargs)


def _extent(cells):
    """How many (columns, rows) of a map are no padding, by its first row and column: (B, 1, 2)."""
    first = ops.cast(cells[:, 0], "float32"), ops.cast(cells[:, :, 0], "float32")
    return ops.stack([ops.sum(x, axis=1) for x in first], axis=-1)[:, None]


# Around the ResNets of DETR. tiny is this package's own, for images of some 96 x 96.
SMCA.sizes = sizes_with_300_queries(SMCAConfig)
