"""The Evoformer of AlphaFold (Jumper et al. 2021, "Highly accurate protein structure prediction with
AlphaFold"): aligned sequences and pairs of residues, each of which updates the other.

    alignment --> attention in rows --> in columns --> transition ----+---------------->
                    ^ bias                                            | mean of outer products
    pairs ----------+-------------------------------------------------+--> triangles --> transition

Supplement, section 1.6. Weights and numbers are OpenFold's (aqlaboratory/openfold), which has the authors'
and hides transitions at padding.
"""

import dataclasses
from typing import Any

import keras

from keras_tfm.configs import Config, Depth, Rate, Size
from keras_tfm.layers.attention.gated import GatedAttention, GlobalAttention, OnColumns
from keras_tfm.layers.blocks import Block
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.triangles import PairBias, TriangleAttention, TriangleMultiplication
from keras_tfm.layers.two_tracks import OuterProductMean, TableResidual, Transition, TwoTrackBlock
from keras_tfm.models.base import ConfiguredModel, Trace

EPSILON = 1e-5  # of all norms


@dataclasses.dataclass(frozen=True)
class EvoformerConfig(Config):
    """The sizes of an `Evoformer`.

    Args:
        msa_dim: the width of a residue of an aligned sequence.
        pair_dim: the width of a pair of residues.
        single_dim: the width of a residue in the output.
        msa_head_dim: the width of a head of the attention in rows and columns.
        outer_dim: the width of the factors of outer products.
        triangle_dim: the width of the products of triangles' sides.
        pair_head_dim: the width of a head of the attention of triangles.
        expansion: how many times wider transitions are.
        outer_first: whether the outer products come first in a block, as in AlphaFold-Multimer.
        msa_dropout: of the attention in rows, the same for all sequences.
        pair_dropout: of triangles, the same for all rows, or columns.
    """

    msa_dim: Size = 256
    pair_dim: Size = 128
    single_dim: Size = 384
    num_layers: Depth = 48
    num_msa_heads: Size = 8
    msa_head_dim: Size = 32
    num_pair_heads: Size = 4
    pair_head_dim: Size = 32
    outer_dim: Size = 32
    triangle_dim: Size = 128
    expansion: Size = 4
    outer_first: bool = False
    msa_dropout: Rate = 0.15
    pair_dropout: Rate = 0.25


class Evoformer(ConfiguredModel):
    """Vectors of an alignment and of pairs in, the same and a vector for each residue out.

    Inputs: `msa` (B, S, N, D), S sequences of N residues, the first one the protein's own; `pair` (B, N, N,
    P); and their masks `msa_mask` (B, S, N) and `pair_mask` (B, N, N), False at padding. Outputs:
    `sequence_output` (B, N, single_dim), of the first sequence, `msa_output` and `pair_output`.

    >>> model = keras_tfm.models.Evoformer.from_size("tiny")
    >>> inputs = {"msa": np.zeros((1, 3, 5, 32)), "msa_mask": np.ones((1, 3, 5), "bool")}
    >>> inputs |= {"pair": np.zeros((1, 5, 5, 16)), "pair_mask": np.ones((1, 5, 5), "bool")}
    >>> model(inputs)["sequence_output"].shape
    TensorShape([1, 5, 48])
    """

    config_class = EvoformerConfig

    def __init__(self, config: EvoformerConfig, name: str = "evoformer", **kwargs: Any) -> None:
        inputs = {
            "msa": keras.Input((None, None, config.msa_dim), name="msa"),
            "pair": keras.Input((None, None, config.pair_dim), name="pair"),
            "msa_mask": keras.Input((None, None), dtype="bool", name="msa_mask"),
            "pair_mask": keras.Input((None, None), dtype="bool", name="pair_mask"),
        }
        trace = Trace()
        blocks = [evoformer_block(config, f"block_{i}") for i in range(config.num_layers)]
        msa, pair = run_two_tracks(trace, "encoder", blocks, *inputs.values())
        single = Dense(config.single_dim, name="single")(msa[:, 0])
        outputs = {"sequence_output": single, "msa_output": msa, "pair_output": pair}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


def run_two_tracks(trace, stack, blocks, sequence, pair, sequence_mask, pair_mask):
    """(Sequence, pair) after all `blocks`; `trace` records them, and the states of the sequence."""
    states = [sequence]
    for block in blocks:
        sequence, pair = block(sequence, pair, sequence_mask=sequence_mask, pair_mask=pair_mask)
        states.append(sequence)
    trace.blocks[stack] = list(blocks)
    trace.hidden_states[stack] = states
    return sequence, pair


def evoformer_block(config, name, global_columns=False):
    """A block (algorithm 6); with `global_columns` one for many sequences, the extra ones (18)."""
    over_columns = GlobalAttention if global_columns else GatedAttention
    sizes = config.num_msa_heads, config.msa_head_dim
    msa = {
        "attention": residual(GatedAttention(*sizes), config.msa_dropout),
        "column_attention": residual(OnColumns(over_columns(*sizes))),
        "transition": residual(Transition(config.expansion * config.msa_dim)),
    }
    return TwoTrackBlock(
        PairBias(config.num_msa_heads, EPSILON),
        Block(msa),
        OuterProductMean(config.pair_dim, config.outer_dim, epsilon=EPSILON),
        Block(triangle_parts(config, config.pair_dim, config.pair_dropout, across=("ending",))),
        config.outer_first,
        name=name,
    )


def triangle_parts(config, dim, dropout, attention_first=False, across=()):
    """The parts of a block of pairs `dim` wide: triangles and a transition, in the order in which they run.

    What dropout drops is common to all rows, but to all columns for the parts that `across` names.
    """
    heads = config.num_pair_heads, config.pair_head_dim

    def part(name, branch):
        return residual(branch, dropout, 2 if name in across else 1)

    multiplications = {
        name: part(name, TriangleMultiplication(config.triangle_dim, name == "outgoing", EPSILON))
        for name in ("outgoing", "incoming")
    }
    attentions = {
        "starting": part("starting", TriangleAttention(*heads)),
        "ending": part("ending", OnColumns(TriangleAttention(*heads))),
    }
    first, second = (attentions, multiplications) if attention_first else (multiplications, attentions)
    return first | second | {"transition": residual(Transition(config.expansion * dim))}


def residual(branch, dropout=0.0, axis=1):
    """x + branch(norm(x)) of a table."""
    return TableResidual(branch, LayerNormalization(EPSILON), dropout, axis)


# Jumper et al. 2021, supplement, section 1.6; tiny is this package's own.
Evoformer.sizes = {
    "tiny": EvoformerConfig(32, 16, 48, 2, 4, 8, 2, 8, 8, 16, 2),
    "alphafold": EvoformerConfig(),
    "alphafold-multimer": EvoformerConfig(outer_first=True),
}
