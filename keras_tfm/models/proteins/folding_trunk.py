"""ESMFold's trunk (Lin et al. 2023, "Evolutionary-scale prediction of atomic-level protein structure with a
language model"): one sequence in place of AlphaFold's alignment.

    sequence --> attention with a bias from pairs --> transition --+-------------------->
                                                                   | products, differences     --> structure
    pairs ---------------------------------------------------------+--> triangles --> transition

A pass takes what the last one found. Weights and numbers equal transformers' EsmFoldingTrunk.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, Depth, Refusal, Size
from keras_tfm.layers.attention.gated import GatedAttention
from keras_tfm.layers.base import Layer, require_sizes
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.frames import distance_bins
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.triangles import PairBias
from keras_tfm.layers.two_tracks import SequenceToPair, TwoTrackBlock
from keras_tfm.models.base import Trace
from keras_tfm.models.proteins.embedders import PairPositionTable
from keras_tfm.models.proteins.evoformer import EPSILON, run_two_tracks, triangle_parts
from keras_tfm.models.proteins.recycling import RecyclingModel
from keras_tfm.models.proteins.structure import StructureConfig, structure_module

# The place of CB beside N, CA and C: of a = b x c, b = CA - N and c = C - CA.
BETA = (-0.58273431, 0.56802827, -0.54067466)
NEAREST, FARTHEST = 3.375, 21.375  # of the last pass's distances, in angstroms
RECYCLED = {
    "previous_sequence": "sequence_output",
    "previous_pair": "pair_output",
    "previous_betas": "betas",
}


@dataclasses.dataclass(frozen=True)
class FoldingTrunkConfig(StructureConfig):
    """The sizes of a `FoldingTrunk`; its structure module's are inherited.

    Args:
        dim: the width of a residue.
        head_dim: the width of a head of the sequence's attention.
        pair_dim: the width of a pair, of the products of triangles' sides too.
        pair_head_dim: the width of a head of the triangles' attention.
        expansion: how many times wider transitions are.
        position_limit: distances along the chain above it are one class.
        num_bins: of distances that the last pass found.
        structure_dim: the width of a residue in the structure module.
        structure_pair_dim: the width of a pair there.
        dropout: of the sequence; pairs have twice as much.
    """

    dim: Size = 1024
    head_dim: Size = 32
    pair_dim: Size = 128
    pair_head_dim: Size = 32
    num_layers: Depth = 48
    expansion: Size = 4
    position_limit: Size = 32
    num_bins: Size = 15
    structure_dim: Size = 384
    structure_pair_dim: Size = 128
    dropout: Annotated[float, Between(0, 0.5, is_open=True)] = 0.0

    def __post_init__(self):
        super().__post_init__()
        for name, width in (("head_dim", self.dim), ("pair_head_dim", self.pair_dim)):
            if width % getattr(self, name):
                raise Refusal(name, f"a divisor of {width}", getattr(self, name))

    @property
    def num_pair_heads(self):
        """How many heads the triangles' attention has."""
        return self.pair_dim // self.pair_head_dim

    @property
    def triangle_dim(self):
        """The width of the products of triangles' sides."""
        return self.pair_dim


class FoldingTrunk(RecyclingModel):
    """Vectors of residues in, positions of atoms out, in one pass; `fold` makes several.

    Inputs: `sequence` (B, N, D) and `pair` (B, N, N, P); `numbers` (B, N) of residues, 0 to 20;
    `residue_index` (B, N) along the chain; `padding_mask` (B, N); and what the last pass found,
    `previous_sequence`, `previous_pair` and `previous_betas` (B, N, 3), zeros at first. Outputs:
    `sequence_output`, `pair_output`, the outputs of a `StructureModule`, and `betas`, the places of CB.

    >>> model = keras_tfm.models.FoldingTrunk.from_size("tiny")
    >>> inputs = {"sequence": np.zeros((1, 5, 32)), "pair": np.zeros((1, 5, 5, 16))}
    >>> inputs |= {"numbers": np.zeros((1, 5), "int32"), "residue_index": np.arange(5)[None]}
    >>> inputs |= {"padding_mask": np.ones((1, 5), "bool")}
    >>> model.fold(inputs, num_recycles=1)["positions"].shape
    TensorShape([1, 2, 5, 14, 3])
    """

    config_class = FoldingTrunkConfig
    recycled = RECYCLED

    def __init__(self, config: FoldingTrunkConfig, name: str = "folding_trunk", **kwargs: Any) -> None:
        inputs = {
            "sequence": keras.Input((None, config.dim), name="sequence"),
            "pair": keras.Input((None, None, config.pair_dim), name="pair"),
            **trunk_inputs(config),
        }
        trace = Trace()
        outputs = trunk_outputs(config, trace, **inputs)
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


def trunk_inputs(config):
    """The inputs of a pass but for what is folded: the residues, and what the last pass found."""
    return {
        "numbers": keras.Input((None,), dtype="int32", name="numbers"),
        "residue_index": keras.Input((None,), dtype="int32", name="residue_index"),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
        "previous_sequence": keras.Input((None, config.dim), name="previous_sequence"),
        "previous_pair": keras.Input((None, None, config.pair_dim), name="previous_pair"),
        "previous_betas": keras.Input((None, 3), name="previous_betas"),
    }


def trunk_outputs(
    config,
    trace,
    sequence,
    pair,
    numbers,
    residue_index,
    padding_mask,
    previous_sequence,
    previous_pair,
    previous_betas,
):
    """The outputs of one pass, a dictionary of symbols; a `pair` of 0.0 stands for zeros."""
    sequence = sequence + LayerNormalization(EPSILON, name="previous_sequence_norm")(previous_sequence)
    pair = pair + LayerNormalization(EPSILON, name="previous_pair_norm")(previous_pair)
    pair = pair + DistanceTable(config.num_bins, config.pair_dim, name="distance")(previous_betas)
    pair = pair + PairPositionTable(config.pair_dim, config.position_limit, name="position")(
        residue_index, padding_mask
    )
    pair_mask = ops.logical_and(padding_mask[:, :, None], padding_mask[:, None])
    blocks = [folding_block(config, f"block_{i}") for i in range(config.num_layers)]
    sequence, pair = run_two_tracks(trace, "encoder", blocks, sequence, pair, padding_mask, pair_mask)
    structure = structure_module(config, "structure")(
        Dense(config.structure_dim, name="structure_sequence")(sequence),
        Dense(config.structure_pair_dim, name="structure_pair")(pair),
        numbers,
        padding_mask,
    )
    betas = VirtualBetas(name="betas")(structure["positions"][:, -1])
    return {"sequence_output": sequence, "pair_output": pair, **structure, "betas": betas}


def folding_block(config, name):
    """A block of the trunk: attention and a transition of the sequence, then of the pairs."""
    num_heads = config.dim // config.head_dim
    part = residuals(config.dropout, EPSILON, normalize_first=True)
    sequence = {
        "attention": part(GatedAttention(num_heads, config.head_dim)),
        "transition": part(FeedForward(config.expansion * config.dim)),
    }
    pair = triangle_parts(config, config.pair_dim, 2 * config.dropout, across=("outgoing", "starting"))
    pair["transition"] = part(FeedForward(config.expansion * config.pair_dim))
    return TwoTrackBlock(
        PairBias(num_heads, EPSILON),
        Block(sequence),
        SequenceToPair(config.pair_dim, epsilon=EPSILON),
        Block(pair),
        name=name,
    )


class DistanceTable(Layer):
    """A vector (B, N, N, `dim`) for the bin that a distance falls in, from places (B, N, 3), in angstroms.

    The first bin ends at `NEAREST` and the last begins at `FARTHEST`.
    """

    def __init__(self, num_bins: int, dim: int, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # angstroms are wrong in lower precision
        require_sizes(num_bins=num_bins, dim=dim)
        self.num_bins = num_bins
        self.dim = dim
        self.embedding = keras.layers.Embedding(num_bins, dim)

    def build(self, positions_shape):
        self.embedding.build(positions_shape)

    def call(self, positions):
        """(B, N, 3) -> (B, N, N, dim)."""
        return self.embedding(distance_bins(positions, NEAREST, FARTHEST, self.num_bins))

    def compute_output_shape(self, positions_shape):
        return (*positions_shape[:2], positions_shape[1], self.dim)


class VirtualBetas(Layer):
    """The places (B, N, 3) of CB by N, CA and C, of atoms (B, N, 14, 3): glycine has one too."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # angstroms are wrong in lower precision

    def call(self, positions):
        """(B, N, 14, 3) -> (B, N, 3)."""
        nitrogen, alpha, carbon = (positions[:, :, i] for i in range(3))
        b, c = alpha - nitrogen, carbon - alpha
        return BETA[0] * ops.cross(b, c) + BETA[1] * b + BETA[2] * c + alpha

    def compute_output_spec(self, positions):
        return keras.KerasTensor((*positions.shape[:2], 3), positions.dtype)


# Lin et al. 2023, ESMFold's; tiny is this package's own.
FoldingTrunk.sizes = {
    "tiny": FoldingTrunkConfig(
        dim=32,
        head_dim=8,
        pair_dim=16,
        pair_head_dim=8,
        num_layers=2,
        expansion=2,
        position_limit=8,
        num_bins=8,
        structure_dim=24,
        structure_pair_dim=16,
        num_structure_layers=2,
        num_structure_heads=2,
        structure_head_dim=4,
        num_query_points=2,
        num_value_points=3,
        angle_dim=16,
    ),
    "esmfold": FoldingTrunkConfig(),
}
