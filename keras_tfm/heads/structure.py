"""The head of a model of structures: logits for distances, residues and confidences, and scores made of them.

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, section 1.9.
"""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.residues import ATOMS
from keras_tfm.layers.signatures import Backbone, Tensor
from keras_tfm.training.model import FunctionalModel

JUDGED = ("sequence_output", "pair_output", "states")  # the outputs that logits are made of


class StructureHead(ModelWithHead):
    """An `AlphaFold` and what it says of itself; the outputs of the `backbone` are among the outputs.

    Further outputs: `confidence_logits` (B, N, confidence_bins) of lDDT, from the structure module's last
    state; `distogram_logits` (B, N, N, distance_bins), the same for ij and ji; `error_logits` (B, N, N,
    error_bins) of aligned errors; `msa_logits` (B, S, N, num_classes) of residues that were hidden; and
    `resolved_logits` (B, N, 37), whether an experiment would see an atom.

    >>> backbone = keras_tfm.models.AlphaFold.from_size("tiny")
    >>> keras_tfm.heads.StructureHead(backbone).output["distogram_logits"].shape
    (None, None, None, 64)
    """

    def __init__(
        self,
        backbone: Backbone,
        confidence_bins: int = 50,
        confidence_dim: int = 128,
        distance_bins: int = 64,
        error_bins: int = 64,
        num_classes: int = 23,
        name: str = "structure_head",
        **kwargs: Any,
    ) -> None:
        outputs = dict(backbone.output)
        pair, state = outputs["pair_output"], outputs["states"][:, -1]
        confidence = Chain(
            [
                LayerNormalization(1e-5),
                Dense(confidence_dim, "relu"),
                Dense(confidence_dim, "relu"),
                Dense(confidence_bins, kernel_initializer="zeros"),
            ],
            name="confidence_head",
        )
        outputs |= {
            "confidence_logits": confidence(state),
            "distogram_logits": SymmetricPairs(distance_bins, name="distogram_head")(pair),
            "error_logits": _zeros(error_bins, "error_head")(pair),
            "msa_logits": _zeros(num_classes, "msa_head")(outputs["msa_output"]),
            "resolved_logits": _zeros(len(ATOMS), "resolved_head")(outputs["sequence_output"]),
        }
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.confidence_bins = confidence_bins
        self.confidence_dim = confidence_dim
        self.distance_bins = distance_bins
        self.error_bins = error_bins
        self.num_classes = num_classes


class FoldingHead(ModelWithHead):
    """An `ESMFold` and what it says of itself; the outputs of the `backbone` are among the outputs.

    Further outputs: `confidence_logits` (B, N, 37, confidence_bins) of lDDT for each kind of atom, from the
    structure module's last state; `distogram_logits` (B, N, N, distance_bins), the same for ij and ji;
    `error_logits` (B, N, N, error_bins) of aligned errors; and `residue_logits` (B, N, num_classes) of
    residues that were hidden. `fold` gives them for the last of several passes. Lin et al. 2023, ESMFold.

    >>> model = keras_tfm.heads.FoldingHead(keras_tfm.models.ESMFold.from_size("tiny"))
    >>> inputs = {"numbers": np.array([[12, 11, 16]]), "residue_index": np.arange(3)[None]}
    >>> outputs = model.fold(inputs | {"padding_mask": np.ones((1, 3), "bool")}, num_recycles=1)
    >>> outputs["confidence_logits"].shape
    TensorShape([1, 3, 37, 50])
    """

    def __init__(
        self,
        backbone: Backbone,
        confidence_bins: int = 50,
        confidence_dim: int = 128,
        distance_bins: int = 64,
        error_bins: int = 64,
        num_classes: int = 23,
        name: str = "folding_head",
        **kwargs: Any,
    ) -> None:
        outputs = dict(backbone.output)
        pair, state = outputs["pair_output"], outputs["states"][:, -1]
        widths = confidence_dim, confidence_dim, len(ATOMS) * confidence_bins
        confidence = Chain([LayerNormalization(1e-5), *map(Dense, widths)], name="confidence_head")
        by_atoms = keras.layers.Reshape((-1, len(ATOMS), confidence_bins), name="by_atoms")
        logits = {
            "confidence_logits": by_atoms(confidence(state)),
            "distogram_logits": SymmetricPairs(distance_bins, 0.5, name="distogram_head")(pair),
            "error_logits": Dense(error_bins, name="error_head")(pair),
            "residue_logits": Dense(num_classes, name="residue_head")(outputs["sequence_output"]),
        }
        super().__init__(backbone, backbone.input, outputs | logits, name=name, **kwargs)
        self.confidence_bins = confidence_bins
        self.confidence_dim = confidence_dim
        self.distance_bins = distance_bins
        self.error_bins = error_bins
        self.num_classes = num_classes
        self._logits = logits

    def fold(self, inputs: dict[str, Any], num_recycles: int | None = None) -> dict[str, Any]:
        """The outputs of the last pass, as the backbone's `fold` makes them, with all logits."""
        outputs = self.backbone.fold(inputs, num_recycles)
        return outputs | self._judge([outputs[name] for name in JUDGED])

    @functools.cached_property
    def _judge(self):
        """The model of the logits, of what the backbone gives."""
        return FunctionalModel([self.backbone.output[name] for name in JUDGED], self._logits)


def _zeros(units, name):
    return Dense(units, kernel_initializer="zeros", name=name)


class SymmetricPairs(Layer):
    """A dense layer of pairs plus its transpose, times `factor`: (B, N, N, P) -> (B, N, N, `units`)."""

    def __init__(self, units: int, factor: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(units=units)
        self.units = units
        self.factor = factor
        self.projection = Dense(units, kernel_initializer="zeros")

    def build(self, pair_shape):
        self.projection.build(pair_shape)

    def call(self, pair):
        """(B, N, N, P) -> (B, N, N, units)."""
        y = self.projection(pair)
        y = y + ops.swapaxes(y, 1, 2)
        return y if self.factor == 1 else y * self.factor

    def compute_output_shape(self, pair_shape):
        return (*pair_shape[:-1], self.units)


def expected_score(logits: Tensor) -> Tensor:
    """The mean of a score in [0, 1] whose equal bins have these `logits` (..., bins): (...), in float32.

    From the `confidence_logits` of a `StructureHead` it is pLDDT, over 100.

    >>> float(keras_tfm.heads.expected_score(np.array([0.0, 0.0, 0.0, 0.0])))
    0.5
    """
    logits = in_float32(ops.convert_to_tensor(logits))
    centres = (np.arange(logits.shape[-1], dtype="float32") + 0.5) / logits.shape[-1]
    return ops.sum(ops.softmax(logits) * centres, axis=-1)


def expected_aligned_error(logits: Tensor, farthest: float = 31.0) -> Tensor:
    """The mean of an error whose bins have these `logits` (B, N, N, bins), in angstroms: (B, N, N).

    >>> keras_tfm.heads.expected_aligned_error(np.zeros((1, 3, 3, 64))).shape
    TensorShape([1, 3, 3])
    """
    logits = in_float32(ops.convert_to_tensor(logits))
    return ops.sum(ops.softmax(logits) * _error_centres(farthest, logits.shape[-1]), axis=-1)


def expected_tm(logits: Tensor, mask: Tensor | None = None, farthest: float = 31.0) -> Tensor:
    """pTM: the TM score (Zhang and Skolnick 2004) that is expected, by the residue's frame with the highest.

    (B,) for `logits` (B, N, N, bins) of aligned errors and `mask` (B, N), False at padding.

    >>> keras_tfm.heads.expected_tm(np.zeros((1, 3, 3, 64))).shape
    TensorShape([1])
    """
    logits = in_float32(ops.convert_to_tensor(logits))
    weights = ops.ones_like(logits[:, 0, :, 0]) if mask is None else ops.cast(mask, "float32")
    count = ops.sum(weights, axis=-1)
    distance = 1.24 * (ops.maximum(count, 19.0) - 15) ** (1 / 3) - 1.8  # (B,), d_0
    squares = np.square(_error_centres(farthest, logits.shape[-1]))
    of_bins = 1 / (1 + squares / ops.square(distance)[:, None])  # (B, bins)
    scores = ops.einsum("bijk,bk->bij", ops.softmax(logits), of_bins)
    scores = ops.sum(scores * weights[:, None], axis=-1) / (1e-8 + count[:, None])  # (B, N)
    return ops.max(scores * weights, axis=-1)


def aligned_error_bins(farthest):
    """The first and the last edge of the bins of aligned errors."""
    return 0.0, farthest


def _error_centres(farthest, num_bins):
    """The middles of the bins of aligned errors; the last is a step further than the one before it."""
    first, last = aligned_error_bins(farthest)
    edges = np.linspace(first, last, num_bins - 1, dtype="float32")
    step = edges[1] - edges[0]
    centres = edges + step / 2
    return np.append(centres, centres[-1] + step)
