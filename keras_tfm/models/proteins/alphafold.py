"""AlphaFold 2 (Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold"): a protein
and sequences aligned with it in, the places of all atoms out.

    alignment --> embedder --+--------------------------> Evoformer --> structure module --> atoms
    last pass --> recycling -+                              ^
    templates --> attention ----> pairs --> extra stack ----+
    more sequences ---------------------------^

A pass is one model, and takes what the last one gave; `fold` makes several. Supplement, algorithm 2. Deviates
from the authors' in that transitions are hidden at padding, as in OpenFold. Making features of alignments and
of templates is not done here.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Depth, Size, Whole
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.residues import LETTERS
from keras_tfm.models.base import Trace
from keras_tfm.models.proteins.embedders import InputEmbedder, RecyclingEmbedder
from keras_tfm.models.proteins.evoformer import (
    EvoformerConfig,
    evoformer_block,
    run_two_tracks,
    triangle_parts,
)
from keras_tfm.models.proteins.recycling import RecyclingModel
from keras_tfm.models.proteins.structure import StructureConfig, structure_module
from keras_tfm.models.proteins.templates import TemplateAttention, TemplatePairs

ALPHA, BETA = 1, 4  # the places of CA and CB among a residue's atoms


@dataclasses.dataclass(frozen=True)
class AlphaFoldConfig(EvoformerConfig, StructureConfig):
    """The sizes of an `AlphaFold`; its Evoformer's and its structure module's are inherited.

    Args:
        target_features: of a residue of the protein.
        msa_features: of a residue of an aligned sequence.
        position_limit: distances along the chain above it are one class.
        num_bins: of distances that the last pass gave.
        num_extra_layers: blocks for the further sequences.
        extra_msa_features: of a residue of one of them.
        extra_msa_dim: its width, and `extra_head_dim` of a head of its attention.
        num_template_layers: blocks for templates; with 0 the model takes none.
        template_features: of a pair of a template, and `template_angle_features` of a residue.
        template_dim: the width of such a pair, and `template_head_dim` of a head.
    """

    target_features: Size = 22
    msa_features: Size = 49
    position_limit: Size = 32
    num_bins: Size = 15
    num_extra_layers: Depth = 4
    extra_msa_features: Size = 25
    extra_msa_dim: Size = 64
    extra_head_dim: Size = 8
    num_template_layers: Whole = 2
    template_features: Size = 88
    template_angle_features: Size = 57
    template_dim: Size = 64
    template_head_dim: Size = 16
    template_expansion: Size = 2

    def extra(self):
        """The configuration of the blocks for the further sequences."""
        return dataclasses.replace(self, msa_dim=self.extra_msa_dim, msa_head_dim=self.extra_head_dim)

    def templates(self):
        """The configuration of the blocks for templates."""
        return dataclasses.replace(
            self,
            pair_head_dim=self.template_head_dim,
            triangle_dim=self.template_dim,
            expansion=self.template_expansion,
        )


class AlphaFold(RecyclingModel):
    """Features of a protein and of its alignment in, vectors and the places of atoms out, in one pass.

    Inputs: `target` (B, N, F) and `numbers` (B, N), 0 to 20, of the protein's residues, `residue_index` (B,
    N) along the chain, `padding_mask` (B, N); `msa` (B, S, N, F'), the protein first, and `msa_mask` (B, S,
    N); `extra_msa` (B, E, N, F'') and `extra_msa_mask`; with templates `template_pairs` (B, T, N, N, G),
    `template_angles` (B, T, N, G'), `template_mask` (B, T) and `template_angle_mask` (B, T, N); and from the
    last pass `previous_row`, `previous_pair` and `previous_betas`. Outputs: `sequence_output` (B, N,
    single_dim), `msa_output`, `row_output` (B, N, D), its first, `pair_output`, `betas` (B, N, 3), and the
    outputs of a `StructureModule`.

    >>> model = keras_tfm.models.AlphaFold.from_size("tiny")
    >>> inputs = {"target": np.zeros((1, 5, 22)), "numbers": np.zeros((1, 5), "int32")}
    >>> inputs |= {"residue_index": np.arange(5)[None], "padding_mask": np.ones((1, 5), "bool")}
    >>> inputs |= {"msa": np.zeros((1, 3, 5, 49)), "msa_mask": np.ones((1, 3, 5), "bool")}
    >>> inputs |= {"extra_msa": np.zeros((1, 4, 5, 25)), "extra_msa_mask": np.ones((1, 4, 5), "bool")}
    >>> model.fold(inputs, num_recycles=1)["positions"].shape
    TensorShape([1, 2, 5, 14, 3])
    """

    config_class = AlphaFoldConfig
    recycled = {"previous_row": "row_output", "previous_pair": "pair_output", "previous_betas": "betas"}

    def __init__(self, config: AlphaFoldConfig, name: str = "alphafold", **kwargs: Any) -> None:
        x = _inputs(config)
        mask = x["padding_mask"]
        pair_mask = ops.logical_and(mask[:, :, None], mask[:, None])
        embedder = InputEmbedder(config.msa_dim, config.pair_dim, config.position_limit, name="embedder")
        msa, pair = embedder(x["target"], x["msa"], x["residue_index"])
        recycling = RecyclingEmbedder(config.num_bins, name="recycling")
        row, previous = recycling(x["previous_row"], x["previous_pair"], x["previous_betas"])
        msa = ops.concatenate([msa[:, :1] + row[:, None], msa[:, 1:]], axis=1)
        pair, msa_mask = pair + previous, x["msa_mask"]
        if config.num_template_layers:
            pair = pair + _of_templates(config, pair, pair_mask, x)
            dense = [Dense(config.msa_dim, "relu"), Dense(config.msa_dim)]
            angles = Chain(dense, name="template_angles_embedding")
            msa = ops.concatenate([msa, angles(x["template_angles"])], axis=1)  # (B, S + T, N, D)
            msa_mask = ops.concatenate([msa_mask, x["template_angle_mask"]], axis=1)
        trace = Trace()
        extra = Dense(config.extra_msa_dim, name="extra_embedding")(x["extra_msa"])
        names = [f"extra_block_{i}" for i in range(config.num_extra_layers)]
        blocks = [evoformer_block(config.extra(), name, global_columns=True) for name in names]
        _, pair = run_two_tracks(trace, "extra", blocks, extra, pair, x["extra_msa_mask"], pair_mask)
        blocks = [evoformer_block(config, f"block_{i}") for i in range(config.num_layers)]
        msa, pair = run_two_tracks(trace, "encoder", blocks, msa, pair, msa_mask, pair_mask)
        single = Dense(config.single_dim, name="single")(msa[:, 0])
        structure = structure_module(config, "structure")(single, pair, x["numbers"], mask)
        betas = BetaPositions(name="betas")(structure["positions"][:, -1], x["numbers"])
        if config.num_template_layers:
            msa = FirstRows(name="sequences")(msa, x["msa"])
        outputs = {"sequence_output": single, "msa_output": msa, "row_output": msa[:, 0], "pair_output": pair}
        super().__init__(config, x, outputs | structure | {"betas": betas}, trace, name=name, **kwargs)


def _inputs(config):
    """All inputs, {name: symbol}."""
    shapes: dict[str, tuple] = {
        "target": (None, config.target_features),
        "msa": (None, None, config.msa_features),
        "extra_msa": (None, None, config.extra_msa_features),
        "previous_row": (None, config.msa_dim),
        "previous_pair": (None, None, config.pair_dim),
        "previous_betas": (None, 3),
    }
    masks: dict[str, tuple] = {
        "padding_mask": (None,),
        "msa_mask": (None, None),
        "extra_msa_mask": (None, None),
    }
    if config.num_template_layers:
        shapes["template_pairs"] = (None, None, None, config.template_features)
        shapes["template_angles"] = (None, None, config.template_angle_features)
        masks |= {"template_mask": (None,), "template_angle_mask": (None, None)}
    inputs = {name: keras.Input(shape, name=name) for name, shape in shapes.items()}
    inputs |= {name: keras.Input((None,), dtype="int32", name=name) for name in ("numbers", "residue_index")}
    return inputs | {name: keras.Input(shape, dtype="bool", name=name) for name, shape in masks.items()}


def _of_templates(config, pair, pair_mask, x):
    """What templates add to the pairs (algorithm 2, lines 9 to 13)."""
    of_templates, dim = config.templates(), config.template_dim
    blocks = [
        Block(
            triangle_parts(of_templates, dim, config.pair_dropout, attention_first=True, across=("ending",)),
            name=f"template_block_{i}",
        )
        for i in range(config.num_template_layers)
    ]
    templates = Dense(dim, name="template_pairs_embedding")(x["template_pairs"])
    templates = TemplatePairs(blocks, name="template_stack")(templates, pair_mask)
    heads = config.num_pair_heads, config.template_head_dim
    return TemplateAttention(*heads, name="template_attention")(pair, templates, x["template_mask"])


class FirstRows(Layer):
    """As many of the first rows of x (B, R, N, D) as `like` (B, S, N, ...) has: (B, S, N, D)."""

    def call(self, x, like):
        """(B, S, N, D)."""
        return x[:, : ops.shape(like)[1]]

    def compute_output_shape(self, x_shape, like_shape):
        return (x_shape[0], like_shape[1], *x_shape[2:])


class BetaPositions(Layer):
    """The places (B, N, 3) of CB, and in glycine of CA, among atoms (B, N, 14, 3) of residues with `numbers`
    (B, N).
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # angstroms are wrong in lower precision

    def call(self, positions, numbers):
        """(B, N, 3)."""
        is_glycine = (numbers == LETTERS.index("G"))[..., None]
        return ops.where(is_glycine, positions[:, :, ALPHA], positions[:, :, BETA])

    def compute_output_spec(self, positions, numbers):
        return keras.KerasTensor((*positions.shape[:2], 3), positions.dtype)


# Jumper et al. 2021, supplement, section 1.12 and tables 4 and 5: of the authors' five models the first two
# take templates and the others do not. tiny is this package's own.
TINY: dict[str, Any] = {
    "msa_dim": 32, "pair_dim": 16, "single_dim": 24, "num_layers": 2, "num_msa_heads": 4, "msa_head_dim": 8,
    "num_pair_heads": 2, "pair_head_dim": 8, "outer_dim": 8, "triangle_dim": 16, "expansion": 2,
    "num_extra_layers": 1, "extra_msa_dim": 16, "extra_head_dim": 4, "num_template_layers": 0,
    "num_structure_layers": 2, "num_structure_heads": 4, "structure_head_dim": 8, "angle_dim": 16,
}  # fmt: skip
AlphaFold.sizes = {
    "tiny": AlphaFoldConfig(**TINY),
    "model_1": AlphaFoldConfig(),
    "model_3": AlphaFoldConfig(num_template_layers=0),
}
