"""ESMFold's weights (Lin et al. 2023): rows by transformers' names. Parts that are AlphaFold's too have the
names of OpenFold.
"""

import numpy as np

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
    reordered,
    weight,
)


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
