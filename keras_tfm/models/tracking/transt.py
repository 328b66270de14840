"""TransT of Chen et al. 2021, "Transformer Tracking": attention in place of correlation.

    template cells --- attention --+-- cross-attention ---> ... ---+
                                    X                              |
    search cells ----- attention --+-- cross-attention ---> ...    +--> cross-attention ---> one class and
                                                                                             box for each cell

Both sides attend to themselves and then, at the same time, to each other; a last cross-attention joins them
(figures 2 and 3). Positions are added to queries and keys, and not to values. `heads.TargetDetector` predicts
from the cells. Deviates from the authors' model in that the last stage of the backbone is not dilated.
"""

import dataclasses
from typing import Any

from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.detection.base import EPSILON
from keras_tfm.models.tracking.siamese import TINY, SiameseConfig, SiameseTracker, attending_block


@dataclasses.dataclass(frozen=True)
class TransTConfig(SiameseConfig):
    """`SiameseConfig`; `num_layers` are the layers of the fusion, before the last cross-attention."""


class TransT(SiameseTracker):
    """A template and an image to search in, the vectors of its cells out.

    Inputs and outputs as of `SiameseTracker`: `sequence_output` (B, N, D) are the fused cells of the searched
    image.

    >>> model = keras_tfm.models.TransT.from_size("tiny")
    >>> images = {"template_images": np.zeros((1, 32, 32, 3)), "images": np.zeros((1, 64, 64, 3))}
    >>> model(images)["sequence_output"].shape
    TensorShape([1, 64, 64])
    """

    config_class = TransTConfig

    @classmethod
    def fused(cls, config, trace, template, search):
        states: dict[str, Any] = {"template": template.x, "search": search.x}
        cells = {"template": template, "search": search}
        for i in range(config.num_layers):
            for side, x in states.items():
                block = attending_block(config, f"{side}_block_{i}", "attention", has_feedforward=False)
                tensors = {"mask": cells[side].mask, "position": cells[side].position}
                states[side] = trace.run(side, [block], x, attention=tensors)
            states = {
                side: _crossed(config, trace, side, f"{side}_cross_block_{i}", states, cells)
                for side in ("template", "search")
            }
        x = _crossed(config, trace, "search", "decoder_block_0", states, cells)
        return {"sequence_output": LayerNormalization(EPSILON, name="decoder_norm")(x)}


def _crossed(config, trace, side, name, states, cells):
    """The states of a `side` after it has attended to the other one."""
    block = attending_block(config, name, "context_attention")
    other = "search" if side == "template" else "template"
    context = cells[other].as_context(states[other])
    tensors = {"position": cells[side].position, **context}
    return trace.run(side, [block], states[side], context_attention=tensors)


# Chen et al. 2021, table 1: 4 layers; N2 has half of them. tiny is this package's own.
TransT.sizes = {
    "tiny": TransTConfig(**TINY, num_layers=1),
    "N2": TransTConfig(num_layers=2),
    "N4": TransTConfig(),
}
