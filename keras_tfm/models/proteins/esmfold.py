"""ESMFold (Lin et al. 2023, "Evolutionary-scale prediction of atomic-level protein structure with a language
model"): the residues of a protein in, the places of all its atoms out, without an alignment.

    residues --> ESM-2 --> mean of all layers' states --> two dense layers --+--> trunk --> atoms
        |                                                                    |
        +--> table ----------------------------------------------------------+

Weights and numbers equal transformers' EsmForProteinFolding, whose logits `heads.FoldingHead` adds.
Deviates in that ESM-2 gets gradients, unless it is frozen, and computes as all else does, where theirs is
cast to float16.
"""

import dataclasses
import functools
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Config, Whole
from keras_tfm.layers.base import Layer
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.residues import LETTERS
from keras_tfm.models.base import Trace
from keras_tfm.models.proteins.esm2 import VOCABULARY, ESM2Config, esm2_states
from keras_tfm.models.proteins.evoformer import EPSILON
from keras_tfm.models.proteins.folding_trunk import (
    RECYCLED,
    FoldingTrunk,
    FoldingTrunkConfig,
    trunk_inputs,
    trunk_outputs,
)
from keras_tfm.models.proteins.recycling import RecyclingModel
from keras_tfm.training.model import FunctionalModel

TABLE_ROWS = 23  # of residues: the twenty, the unknown one, and two that no sequence has


@dataclasses.dataclass(frozen=True)
class ESMFoldConfig(Config):
    """The sizes of an `ESMFold`.

    Args:
        language_model: ESM-2's.
        trunk: the trunk's.
        vocabulary: the tokens of ESM-2 by id, among them all residues, "X", "<cls>" and "<eos>".
        residue_table: whether a vector of each residue is added to what ESM-2 says of it.
        num_recycles: how many passes follow the first one in `fold`, unless it is called with another number.
    """

    language_model: ESM2Config = dataclasses.field(default_factory=ESM2Config)
    trunk: FoldingTrunkConfig = dataclasses.field(default_factory=FoldingTrunkConfig)
    vocabulary: tuple[str, ...] = VOCABULARY
    residue_table: bool = True
    num_recycles: Whole = 3

    def __post_init__(self):
        super().__post_init__()
        if missing := [token for token in ("<cls>", "<eos>", *LETTERS, "X") if token not in self.vocabulary]:
            raise ValueError(f"`vocabulary` must have a token for each residue; {missing[0]!r} is missing.")
        size, count = self.language_model.vocabulary_size, len(self.vocabulary)
        if count > size:
            raise ValueError(f"`vocabulary` must have at most ESM-2's {size} tokens; it has {count}.")

    @property
    def parts(self):
        """Configurations within this one, whose sizes are checked with its own."""
        return self.language_model, self.trunk


class ESMFold(RecyclingModel):
    """Residues in, positions of atoms out, in one pass; `fold` makes several, and asks ESM-2 once.

    Inputs: `numbers` (B, N) of residues, 0 to 20, padded on the right; `residue_index` (B, N) along the
    chain; `padding_mask` (B, N); and what the last pass found, as of a `FoldingTrunk`. Outputs: a
    `FoldingTrunk`'s.

    >>> model = keras_tfm.models.ESMFold.from_size("tiny")
    >>> inputs = {"numbers": np.array([[12, 11, 16]]), "residue_index": np.arange(3)[None]}  # M K T
    >>> inputs |= {"padding_mask": np.ones((1, 3), "bool")}
    >>> model.fold(inputs, num_recycles=1)["positions"].shape
    TensorShape([1, 2, 3, 14, 3])
    """

    config_class = ESMFoldConfig
    recycled = RECYCLED

    def __init__(self, config: ESMFoldConfig, name: str = "esmfold", **kwargs: Any) -> None:
        encoder, trunk = config.language_model, config.trunk
        inputs, trace = trunk_inputs(trunk), Trace()
        tokens = ProteinTokens(config.vocabulary, encoder.pad_id, name="tokens")
        token_ids, mask = tokens(inputs["numbers"], inputs["padding_mask"])
        _, states = esm2_states(encoder, trace, token_ids, mask, "language_model")
        state = StateMean(name="language_model_mean")(states)[:, 1:-1]
        layers = [LayerNormalization(EPSILON), Dense(trunk.dim, "relu"), Dense(trunk.dim)]
        sequence = Chain(layers, name="language_model_projection")(state)
        if config.residue_table:
            sequence = sequence + TokenEmbedding(TABLE_ROWS, trunk.dim, name="residues")(inputs["numbers"])
        outputs = trunk_outputs(trunk, trace, sequence, 0.0, **inputs)
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self._sequence = sequence

    def fold(self, inputs: dict[str, Any], num_recycles: int | None = None) -> dict[str, Any]:
        """As `RecyclingModel.fold`; the number is the configuration's by default."""
        return super().fold(inputs, self.config.num_recycles if num_recycles is None else num_recycles)

    def prepared(self, inputs):
        """The `inputs` with the vectors of residues, "sequence"."""
        return inputs | {"sequence": self.encoder({name: inputs[name] for name in self.encoder.input})}

    def one_pass(self, inputs):
        """The outputs of the trunk for `prepared` inputs."""
        return self._trunk([*(inputs[name] for name in self.input), inputs["sequence"]])

    @functools.cached_property
    def encoder(self):
        """The model of the vectors (B, N, D) that the trunk takes, of `numbers` and `padding_mask`."""
        inputs = {name: self.input[name] for name in ("numbers", "padding_mask")}
        return FunctionalModel(inputs, self._sequence)

    @functools.cached_property
    def _trunk(self):
        """The model of what follows the `encoder`, whose output is the last input."""
        return FunctionalModel([*self.input.values(), self._sequence], self.output)


class ProteinTokens(Layer):
    """Residues (B, N) with numbers from 0 to 20 as ESM-2's tokens between <cls> and <eos>, and the mask of
    these: two of (B, N + 2). Other numbers are read as unknown residues; what follows refuses them.
    """

    def __init__(self, vocabulary: tuple[str, ...], pad_id: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.vocabulary = vocabulary
        self.pad_id = pad_id

    def call(self, numbers, padding_mask):
        """`numbers` and `padding_mask` are (B, N)."""
        ids = residue_ids(self.vocabulary)
        known = ops.where((numbers >= 0) & (numbers < len(LETTERS)), numbers, len(LETTERS))
        tokens = ops.where(padding_mask, ops.take(ops.convert_to_tensor(ids), known, axis=0), self.pad_id)
        tokens = ops.pad(tokens, ((0, 0), (1, 1)), constant_values=self.pad_id)  # (B, N + 2)
        places = ops.arange(ops.shape(tokens)[1], dtype="int32")
        end = 1 + ops.sum(ops.cast(padding_mask, "int32"), axis=1, keepdims=True)  # (B, 1)
        tokens = ops.where(places == end, self.vocabulary.index("<eos>"), tokens)
        return ops.where(places == 0, self.vocabulary.index("<cls>"), tokens), places <= end

    def compute_output_spec(self, numbers, padding_mask):
        size, length = numbers.shape
        shape = (size, length and length + 2)
        return keras.KerasTensor(shape, "int32"), keras.KerasTensor(shape, "bool")


def residue_ids(vocabulary):
    """The ids of the twenty residues in the order of their numbers, and of the unknown one."""
    return [vocabulary.index(letter) for letter in f"{LETTERS}X"]


class StateMean(Layer):
    """The mean of K states (B, T, D), a list, weighed by the softmax of K learned numbers: (B, T, D)."""

    def build(self, states_shape):
        self.scores = self.add_weight((len(states_shape),), "zeros", name="scores")

    def call(self, states):
        """K of (B, T, D) -> (B, T, D)."""
        weights = ops.cast(ops.softmax(in_float32(self.scores)), states[0].dtype)
        return sum(state * weights[i] for i, state in enumerate(states))

    def compute_output_shape(self, states_shape):
        return states_shape[0]


# Lin et al. 2023: ESM-2 of 3 B weights and 48 blocks; tiny is this package's own.
ESMFold.sizes = {
    "tiny": ESMFoldConfig(
        ESM2Config(num_layers=2, dim=32, num_heads=4, intermediate_dim=64),
        FoldingTrunk.sizes["tiny"],
    ),
    "esmfold": ESMFoldConfig(ESM2Config(num_layers=36, dim=2560, num_heads=40, intermediate_dim=10_240)),
}
