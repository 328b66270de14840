"""ESMFold's checkpoints (Lin et al. 2023), with all its heads. Parts that are AlphaFold's too have the names
of OpenFold.

Their configuration is ESM-2's, with one of the trunk inside "esmfold_config", and in that one of the
structure module. ESM-2's weights for contacts have no effect here: they are not read, and are written as
zeros.
"""

import dataclasses

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.convert import esm2
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, Head, Option
from keras_tfm.convert.keymap import (
    JOINED,
    TRANSPOSED,
    Row,
    Transform,
    embedding,
    feedforward,
    linear,
    norm,
    parts_first,
    renamed,
    reordered,
    weight,
)
from keras_tfm.heads import FoldingHead
from keras_tfm.models import ESMFold, FoldingTrunk
from keras_tfm.models.proteins.esmfold import VOCABULARY, residue_ids
from keras_tfm.training.safetensors import CheckpointError

TRUNK = Family(
    model_type="",
    backbone="EsmFoldingTrunk",
    prefix="",
    model=FoldingTrunk,
    rows=[],
    heads={},
    nested_entries=("structure_module",),
    fields={
        "dim": "sequence_state_dim",
        "head_dim": "sequence_head_width",
        "pair_dim": "pairwise_state_dim",
        "pair_head_dim": "pairwise_head_width",
        "num_layers": "num_blocks",
        "position_limit": "position_bins",
        "dropout": "dropout",
        "structure_dim": "structure_module.sequence_dim",
        "structure_pair_dim": "structure_module.pairwise_dim",
        "num_structure_layers": "structure_module.num_blocks",
        "num_structure_heads": "structure_module.num_heads_ipa",
        "structure_head_dim": "structure_module.ipa_dim",
        "num_query_points": "structure_module.num_qk_points",
        "num_value_points": "structure_module.num_v_points",
        "num_transitions": "structure_module.num_transition_layers",
        "angle_dim": "structure_module.resnet_dim",
        "num_angle_blocks": "structure_module.num_resnet_blocks",
        "scale": Entry(
            "structure_module.trans_scale_factor", lambda value, _: value, lambda config: whole(config.scale)
        ),
        "structure_dropout": "structure_module.dropout_rate",
    },
    fixed_entries={"structure_module.num_angles": 7, "layer_drop": 0.0},
    fixed_fields={"expansion": 4, "num_bins": 15},
)
FOLDING = {
    "use_esm_attn_map": False,
    "esm_ablate_pairwise": False,
    "esm_ablate_sequence": False,
    "bypass_lm": False,
}


def whole(number):
    """The `number` as an integer; ValueError if it is none."""
    if number != int(number):
        raise ValueError(f"EsmForProteinFolding has only whole numbers for `scale`; it is {number}.")
    return int(number)


def gated_rows(ours, theirs):
    """A `GatedAttention` of one input, and their attention."""
    return [
        *linear(f"{ours}/projections/query_key_value", *(f"{theirs}.linear_{part}" for part in "qkv")),
        *linear(f"{ours}/gate", f"{theirs}.linear_g"),
        *linear(f"{ours}/output", f"{theirs}.linear_o"),
    ]


def triangle_rows(ours, theirs):
    """The triangles of a block, without its transition."""
    table = []
    for name, key in (("outgoing", "tri_mul_out"), ("incoming", "tri_mul_in")):
        part, key = f"{ours}/{name}", f"{theirs}{key}"
        table += [
            *norm(f"{part}/norm", f"{key}.layer_norm_in"),
            *linear(f"{part}/branch/edges", f"{key}.linear_a_p", f"{key}.linear_b_p"),
            *linear(f"{part}/branch/edge_gates", f"{key}.linear_a_g", f"{key}.linear_b_g"),
            *norm(f"{part}/branch/norm", f"{key}.layer_norm_out"),
            *linear(f"{part}/branch/gate", f"{key}.linear_g"),
            *linear(f"{part}/branch/output", f"{key}.linear_z"),
        ]
    for name, layer, key in (("starting", "", "tri_att_start"), ("ending", "/layer", "tri_att_end")):
        part, key = f"{ours}/{name}", f"{theirs}{key}"
        table += norm(f"{part}/norm", f"{key}.layer_norm")
        table += linear(f"{part}/branch{layer}/bias", f"{key}.linear")
        table += gated_rows(f"{part}/branch{layer}/attention", f"{key}.mha")
    return table


def block_rows(ours, theirs, num_heads, head_dim):
    """A block of the trunk."""
    sequence, attention = f"{ours}/sequence", f"{ours}/sequence/attention/branch"
    projection = reordered(TRANSPOSED, parts_first(num_heads, head_dim, head_dim, head_dim))
    return [
        *norm(f"{sequence}/attention/norm", f"{theirs}layernorm_1"),
        *weight(
            f"{attention}/projections/query_key_value/kernel",
            f"{theirs}seq_attention.proj.weight",
            projection,
        ),
        *linear(f"{attention}/gate", f"{theirs}seq_attention.g_proj"),
        *linear(f"{attention}/output", f"{theirs}seq_attention.o_proj"),
        *mlp_rows(f"{sequence}/transition", f"{theirs}mlp_seq"),
        *norm(f"{ours}/pair_bias/norm", f"{theirs}pair_to_sequence.layernorm"),
        *linear(f"{ours}/pair_bias/projection", f"{theirs}pair_to_sequence.linear"),
        *norm(f"{ours}/to_pair/norm", f"{theirs}sequence_to_pair.layernorm"),
        *linear(f"{ours}/to_pair/factors", f"{theirs}sequence_to_pair.proj"),
        *linear(f"{ours}/to_pair/output", f"{theirs}sequence_to_pair.o_proj"),
        *triangle_rows(f"{ours}/pair", theirs),
        *mlp_rows(f"{ours}/pair/transition", f"{theirs}mlp_pair"),
    ]


def mlp_rows(ours, theirs):
    """A residual around a `FeedForward`."""
    table = norm(f"{ours}/norm", f"{theirs}.mlp.0")
    return table + feedforward(ours, f"{theirs}.mlp.1", f"{theirs}.mlp.3")


def trunk_rows(config, theirs=""):
    """A `FoldingTrunk` of this configuration."""
    sizes = [
        getattr(config, name)
        for name in ("num_structure_heads", "structure_head_dim", "num_query_points", "num_value_points")
    ]
    return [
        *norm("previous_sequence_norm", f"{theirs}recycle_s_norm"),
        *norm("previous_pair_norm", f"{theirs}recycle_z_norm"),
        *embedding("distance/embedding", f"{theirs}recycle_disto"),
        *embedding("position/embedding", f"{theirs}pairwise_positional_embedding.embedding"),
        *block_rows("block_{}", f"{theirs}blocks.{{}}.", config.dim // config.head_dim, config.head_dim),
        *linear("structure_sequence", f"{theirs}trunk2sm_s"),
        *linear("structure_pair", f"{theirs}trunk2sm_z"),
        *structure_rows("structure", f"{theirs}structure_module.", sizes),
    ]


def structure_rows(ours, theirs, sizes, points=""):
    """A `StructureModule`; `sizes` are its attention's H, K and numbers of points of queries and of values.

    `points` ends the names of their layers for points.
    """
    num_heads, key_dim, *counts = sizes
    attention, ipa = f"{ours}/attention", f"{theirs}ipa"
    joined = query_key_values(num_heads, key_dim)
    placed = point_order(num_heads, *counts)
    table = weight(f"{attention}/point_weights", f"{ipa}.head_weights")
    for name, keys, order in (
        ("query_key_value", (f"{ipa}.linear_q", f"{ipa}.linear_kv"), joined),
        ("points", (f"{ipa}.linear_q_points{points}", f"{ipa}.linear_kv_points{points}"), placed),
    ):
        for part, transform in (("kernel", TRANSPOSED), ("bias", JOINED)):
            theirs_of_part = tuple(f"{key}.{'weight' if part == 'kernel' else 'bias'}" for key in keys)
            table.append(Row(f"{attention}/{name}/{part}", theirs_of_part, in_order(transform, *order)))
    for name, key in (
        ("single_norm", "layer_norm_s"),
        ("pair_norm", "layer_norm_z"),
        ("attention_norm", "layer_norm_ipa"),
        ("transition_norm", "transition.layer_norm"),
    ):
        table += norm(f"{ours}/{name}", f"{theirs}{key}")
    for name, key in (
        ("single_projection", "linear_in"),
        ("frame_update", "bb_update.linear"),
        ("attention/pair_bias", "ipa.linear_b"),
        ("attention/output", "ipa.linear_out"),
        ("angles/embedding", "angle_resnet.linear_in"),
        ("angles/start_embedding", "angle_resnet.linear_initial"),
        ("angles/output", "angle_resnet.linear_out"),
    ):
        table += linear(f"{ours}/{name}", f"{theirs}{key}")
    for i in range(3):
        table += linear(f"{ours}/transition_{{}}/dense_{i}", f"{theirs}transition.layers.{{}}.linear_{i + 1}")
    for i in range(2):
        table += linear(
            f"{ours}/angles/block_{{}}/dense_{i}", f"{theirs}angle_resnet.layers.{{}}.linear_{i + 1}"
        )
    return table


def in_order(transform, order, widths):
    """Our weights from theirs of these `widths`, joined, in this `order`: both ways."""
    back = np.argsort(order)

    def load(*arrays):
        return transform.load(*arrays)[..., order]

    def save(array, count):
        parts = np.split(array[..., back], np.cumsum(widths)[:-1], axis=-1)
        return [transform.save(part, 1)[0] for part in parts]

    return Transform(load, save)


def query_key_values(num_heads, key_dim):
    """(The order of queries, and keys and values head by head, as ours; the widths of theirs)."""
    width = num_heads * key_dim
    pairs = np.arange(2 * width).reshape(num_heads, 2, key_dim).transpose(1, 0, 2).ravel()
    return np.concatenate([np.arange(width), width + pairs]), (width, 2 * width)


def point_order(num_heads, num_query_points, num_value_points):
    """(The order of points, all x before all y, as ours, point by point; the widths of theirs)."""
    counts = num_query_points, num_query_points + num_value_points
    orders, first = [], 0
    for count in counts:
        size = 3 * num_heads * count
        places = first + np.arange(size).reshape(3, num_heads, count)
        orders.append(places.transpose(1, 2, 0))  # (H, P, 3)
        first += size
    return np.concatenate(orders, axis=1).ravel(), tuple(3 * num_heads * count for count in counts)


def rows(config):
    """An `ESMFold` of this configuration."""
    apart = ("pooler/", "contact_head/")
    return [
        *renamed([row for row in esm2.ROWS if not row.ours.startswith(apart)], "language_model_", "esm."),
        *weight("language_model_mean/scores", "esm_s_combine"),
        *norm("language_model_projection/layer_0", "esm_s_mlp.0"),
        *linear("language_model_projection/layer_1", "esm_s_mlp.1"),
        *linear("language_model_projection/layer_2", "esm_s_mlp.3"),
        *embedding("residues/token", "embedding"),
        *trunk_rows(config.trunk, "trunk."),
    ]


HEAD = [
    *norm("confidence_head/layer_0", "lddt_head.0"),
    *(row for i in (1, 2, 3) for row in linear(f"confidence_head/layer_{i}", f"lddt_head.{i}")),
    *linear("distogram_head/projection", "distogram_head"),
    *linear("error_head", "ptm_head"),
    *linear("residue_head", "lm_head"),
]


def derived_tensors(config):
    """What their files hold besides: ESM-2's tokens of padding and residues, its frequencies, and zeros."""
    encoder = config.language_model
    count = encoder.num_layers * encoder.num_heads
    return {
        "af2_to_esm": np.array([encoder.pad_id, *residue_ids(config.vocabulary)], "int64"),
        "esm.contact_head.regression.weight": np.zeros((1, count), "float32"),
        "esm.contact_head.regression.bias": np.zeros(1, "float32"),
        **{f"esm.{key}": x for key, x in esm2.derived_tensors(encoder).items()},
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoldingFamily(Family):
    """A family whose configuration holds ESM-2's and the trunk's."""

    def read_config(self, entries, path):
        """Our configuration for their entries; CheckpointError for malformed or unsupported ones."""
        folding = _inside(entries, "esmfold_config", path)
        for name, value in FOLDING.items():
            if folding.get(name, value) != value:
                raise CheckpointError(path, f"esmfold_config.{name}", repr(value), brief(folding[name]))
        theirs = _inside(folding, "trunk", path)
        try:
            trunk = TRUNK.read_config(theirs, path)
        except CheckpointError as error:
            key = f"esmfold_config.trunk.{error.key or ''}".rstrip(".")
            raise CheckpointError(error.path, key, error.expected, error.got) from None
        passes = theirs.get("max_recycles", 4)
        if type(passes) is not int or passes < 1:
            expected = "a number of passes of at least 1"
            raise CheckpointError(path, "esmfold_config.trunk.max_recycles", expected, brief(passes))
        values = {
            "language_model": esm2.FAMILY.read_config(entries, path),
            "trunk": trunk,
            "vocabulary": entries.get("vocab_list") or VOCABULARY,
            "residue_table": folding.get("embed_aa", True),
            "num_recycles": passes - 1,
        }
        try:
            return self.model.config_class.from_json(values)
        except ValueError as error:
            raise self.refusal(error, path) from None

    def write_config(self, config):
        """Their entries for our configuration; ValueError if they have none for it."""
        trunk = TRUNK.write_config(config.trunk) | {"max_recycles": config.num_recycles + 1}
        trunk.pop("model_type")
        folding = {**FOLDING, "embed_aa": config.residue_table, "fp16_esm": False, "trunk": trunk}
        return esm2.FAMILY.write_config(config.language_model) | {
            "is_folding_model": True,
            "vocab_list": list(config.vocabulary),
            "esmfold_config": folding,
        }


def _inside(entries, name, path):
    """The dictionary that is an entry; {} if there is none."""
    value = entries.get(name)
    if not isinstance(value, dict | type(None)):
        raise CheckpointError(path, name, "entries by name", brief(value))
    return value or {}


CONFIDENCE_DIM = Option(
    lambda entries: (entries.get("esmfold_config") or {}).get("lddt_head_hid_dim", 128),
    lambda dim: {"esmfold_config": {"lddt_head_hid_dim": dim}},
)
FAMILY = FoldingFamily(
    model_type="esm",
    backbone="EsmForProteinFolding",
    model=ESMFold,
    prefix="",
    fields={},
    rows=rows,
    heads={
        "EsmForProteinFolding": Head(
            FoldingHead,
            HEAD,
            {"confidence_bins": 50, "distance_bins": 64, "error_bins": 64, "num_classes": 23},
            {"confidence_dim": CONFIDENCE_DIM},
        )
    },
    buffers=(
        "af2_to_esm",
        r"esm\.contact_head\..*",
        *(rf"esm\.{pattern}" for pattern in esm2.FAMILY.buffers),
    ),
    derived_tensors=derived_tensors,
)
