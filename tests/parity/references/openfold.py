"""AlphaFold's parts by their names in aqlaboratory/openfold, each with its weights and its inputs."""

import numpy as np
from keras import ops

from keras_tfm.convert.esmfold import gated_rows, structure_rows, triangle_rows
from keras_tfm.convert.keymap import linear, norm, read_state
from keras_tfm.layers.attention.invariant_point import InvariantPointAttention
from keras_tfm.layers.blocks import Block
from keras_tfm.layers.frames import rotation_of_quaternion
from keras_tfm.layers.residues import residues
from keras_tfm.models import (
    Evoformer,
    EvoformerConfig,
    StructureModule,
    TemplateAttention,
    TemplatePairs,
)
from keras_tfm.models.proteins.evoformer import evoformer_block, triangle_parts
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import check_arguments

FIELDS = {
    "c_m": "msa_dim",
    "c_z": "pair_dim",
    "c_s": "single_dim",
    "no_blocks": "num_layers",
    "c_hidden_msa_att": "msa_head_dim",
    "c_hidden_opm": "outer_dim",
    "c_hidden_mul": "triangle_dim",
    "c_hidden_pair_att": "pair_head_dim",
    "no_heads_msa": "num_msa_heads",
    "no_heads_pair": "num_pair_heads",
    "transition_n": "expansion",
    "opm_first": "outer_first",
}
# Our parts of a block by the names of theirs.
MSA_PARTS = {"msa_att_row": "attention", "msa_att_col": "column_attention", "msa_transition": "transition"}
PAIR_PARTS = {
    "tri_mul_out": "outgoing",
    "tri_mul_in": "incoming",
    "tri_att_start": "starting",
    "tri_att_end": "ending",
    "pair_transition": "transition",
}


def weights_of(arrays):
    """{key: array} of the weights among the stored `arrays`."""
    return {name.removeprefix("weights/"): x for name, x in arrays.items() if name.startswith("weights/")}


def inputs_of(arrays, *names):
    """The names of what is given: the weights, and these arrays."""
    return [name for name in arrays if name.startswith("weights/") or name in names]


def evoformer_rows(ours, theirs):
    """The table of a block; the columns of an extra alignment have weights of other names."""
    msa, column, table = f"{ours}/sequence", f"{theirs}msa_att_col", []
    for part, norm_name, layer, keys in (
        ("attention", f"{theirs}msa_att_row.layer_norm_m", "", f"{theirs}msa_att_row.mha"),
        ("column_attention", f"{column}._msa_att.layer_norm_m", "/layer", f"{column}._msa_att.mha"),
    ):
        table += norm(f"{msa}/{part}/norm", norm_name)
        table += gated_rows(f"{msa}/{part}/branch{layer}", keys)
    return [
        *table,
        *norm(f"{ours}/pair_bias/norm", f"{theirs}msa_att_row.layer_norm_z"),
        *linear(f"{ours}/pair_bias/projection", f"{theirs}msa_att_row.linear_z"),
        *transition_rows(f"{msa}/transition", f"{theirs}msa_transition"),
        *norm(f"{ours}/to_pair/norm", f"{theirs}outer_product_mean.layer_norm"),
        *linear(
            f"{ours}/to_pair/factors",
            f"{theirs}outer_product_mean.linear_1",
            f"{theirs}outer_product_mean.linear_2",
        ),
        *linear(f"{ours}/to_pair/output", f"{theirs}outer_product_mean.linear_out"),
        *triangle_rows(f"{ours}/pair", f"{theirs}pair_stack."),
        *transition_rows(f"{ours}/pair/transition", f"{theirs}pair_stack.pair_transition"),
    ]


def transition_rows(ours, theirs):
    """A residual around a `Transition`."""
    return [
        *norm(f"{ours}/norm", f"{theirs}.layer_norm"),
        *linear(f"{ours}/branch/hidden", f"{theirs}.linear_1"),
        *linear(f"{ours}/branch/output", f"{theirs}.linear_2"),
    ]


def extra_rows(ours, theirs):
    """The table of a block of the extra alignment."""
    column = f"{ours}/sequence/column_attention"
    keys = f"{theirs}msa_att_col.global_attention"
    table = [row for row in evoformer_rows(ours, theirs) if not row.ours.startswith(column)]
    return [
        *table,
        *norm(f"{column}/norm", f"{theirs}msa_att_col.layer_norm_m"),
        *linear(f"{column}/branch/layer/projections/query", f"{keys}.linear_q"),
        *linear(f"{column}/branch/layer/projections/key_value", f"{keys}.linear_k", f"{keys}.linear_v"),
        *linear(f"{column}/branch/layer/gate", f"{keys}.linear_g"),
        *linear(f"{column}/branch/layer/output", f"{keys}.linear_o"),
    ]


def config_of(arguments, call, **more):
    """Our configuration for their arguments; CheckpointError for what is computed in another way."""
    check_arguments(arguments, {*FIELDS, "inf", "eps", "no_column_attention"}, "Evoformer")
    if arguments.get("no_column_attention") or not call.get("_mask_trans", True):
        raise CheckpointError("Evoformer", "call", "column attention and masked transitions", f"{arguments}")
    fields = {ours: arguments[theirs] for theirs, ours in FIELDS.items() if theirs in arguments}
    return EvoformerConfig(**fields | more)


def read_evoformer(arguments, arrays):
    """The whole stack, and what the branches of its first block add."""
    config = config_of(arguments, {})
    model = Evoformer(config)
    rows = [*evoformer_rows("block_{}", "blocks.{}."), *linear("single", "linear")]
    read_state(model, weights_of(arrays), rows)
    inputs = ("msa", "pair", "msa_mask", "pair_mask")
    tensors = {name: arrays[name].astype("bool" if "mask" in name else "float32") for name in inputs}
    outputs = model(tensors)
    block, *_ = model.blocks["encoder"]
    features, msa, pair = branches_of(block, **tensors)
    found = {"msa_output": outputs["msa_output"], "pair_output": outputs["pair_output"]}
    found |= {"features/msa_after_block_0": msa, "features/pair_after_block_0": pair}
    return inputs_of(arrays, *inputs), found | features | {"single_output": outputs["sequence_output"]}


def read_extra(arguments, arrays):
    """One block of the extra alignment, and what its branches add."""
    config = config_of(arguments, {}, num_layers=1)
    block = evoformer_block(config, "block", global_columns=True)
    inputs = ("msa", "pair", "msa_mask", "pair_mask")
    tensors = {name: arrays[name].astype("bool" if "mask" in name else "float32") for name in inputs}
    block(*tensors.values())
    read_state(block, weights_of(arrays), extra_rows("block", ""))
    msa, pair = block(*tensors.values())
    features, _, _ = branches_of(block, **tensors)
    return inputs_of(arrays, *inputs), features | {"msa_output": msa, "pair_output": pair}


def branches_of(block, msa, pair, msa_mask, pair_mask):
    """({feature: what a branch adds}, msa, pair) of a `TwoTrackBlock`, run part by part."""
    features, outer = {}, "features/outer_product_mean"
    if block.pair_first:
        features[outer] = block.to_pair(msa, mask=msa_mask)
        pair = pair + features[outer]
    bias = {"attention": {"bias": block.pair_bias(pair)}}
    msa = run_parts(block.sequence, msa, msa_mask, MSA_PARTS, bias, features)
    if not block.pair_first:
        features[outer] = block.to_pair(msa, mask=msa_mask)
        pair = pair + features[outer]
    return features, msa, run_parts(block.pair, pair, pair_mask, PAIR_PARTS, {}, features)


def run_parts(block, x, mask, names, tensors, features):
    """x after the parts of a `Block`; what each adds is put into `features`."""
    for theirs, name in names.items():
        part = block.parts[name]
        y = part.branch(part.before(x), mask=mask, **tensors.get(name, {}))
        features[f"features/{theirs}"] = y
        x = part.after(x, y)
    return x


def read_structure(arguments, arrays):
    """The structure module, what its attention adds, and the tables of residues."""
    names = {
        "c_s", "c_z", "c_ipa", "c_resnet", "no_heads_ipa", "no_qk_points", "no_v_points", "no_blocks",
        "no_transition_layers", "no_resnet_blocks", "trans_scale_factor", "epsilon", "no_angles", "inf",
    }  # fmt: skip
    check_arguments(arguments, names, "StructureModule")
    sizes = [arguments[name] for name in ("no_heads_ipa", "c_ipa", "no_qk_points", "no_v_points")]
    module = StructureModule(
        arguments["no_blocks"],
        InvariantPointAttention(*sizes, arguments["epsilon"]),
        arguments["no_transition_layers"],
        arguments["c_resnet"],
        arguments["no_resnet_blocks"],
        arguments["trans_scale_factor"],
        name="structure",
    )
    single, pair, numbers = (arrays[name] for name in ("single", "pair", "aatype"))
    mask = arrays["mask"] > 0
    module(single, pair, numbers, mask)
    read_state(module, weights_of(arrays), structure_rows("structure", "", sizes, ".linear"))
    added = []
    attend = module.attention.call
    module.attention.call = lambda *args, **more: added.append(attend(*args, **more)) or added[-1]
    outputs = module(single, pair, numbers, mask)
    found = layers_first(outputs, arrays["mask"])
    states = found["states"]
    rotations = ops.convert_to_numpy(rotation_of_quaternion(outputs["frames"][..., :4]))
    found["features/rotations"] = np.moveaxis(rotations, 1, 0) * arrays["mask"][None, ..., None, None]
    found |= {f"features/ipa_{i}": y * arrays["mask"][..., None] for i, y in enumerate(added)}
    tables = residues()
    constants = {
        "default_frames": tables.frames,
        "group_idx": tables.groups,
        "atom_mask": tables.exists,
        "lit_positions": tables.positions,
    }
    found |= {f"constants/{name}": table for name, table in constants.items()}
    return inputs_of(arrays, "single", "pair", "aatype", "mask"), found | {"single_output": states[-1]}


def layers_first(outputs, mask):
    """Outputs (B, L, N, ...) as (L, B, N, ...), 0 at padding."""
    arrays = {name: np.moveaxis(ops.convert_to_numpy(x), 1, 0) for name, x in outputs.items()}
    return {name: x * mask.reshape(1, *mask.shape, *[1] * (x.ndim - 3)) for name, x in arrays.items()}


def read_templates(arguments, arrays):
    """The stack of pairs of templates, and what pairs read of them."""
    names = {
        "c_t", "c_z", "c_hidden_tri_att", "c_hidden_tri_mul", "no_blocks", "no_heads", "pair_transition_n",
        "tri_mul_first", "inf_stack", "inf_pointwise",
    }  # fmt: skip
    check_arguments(arguments, names, "templates")
    heads = arguments["no_heads"], arguments["c_hidden_tri_att"]
    config = EvoformerConfig(
        num_pair_heads=heads[0],
        pair_head_dim=heads[1],
        triangle_dim=arguments["c_hidden_tri_mul"],
        expansion=arguments["pair_transition_n"],
    )
    blocks = [
        Block(
            triangle_parts(config, arguments["c_t"], 0.0, attention_first=not arguments["tri_mul_first"]),
            name=f"block_{i}",
        )
        for i in range(arguments["no_blocks"])
    ]
    stack = TemplatePairs(blocks, name="templates")
    attention = TemplateAttention(*heads, name="attention")
    pair, mask = arrays["pair"], arrays["template_mask"] > 0
    attention(pair, stack(arrays["template_pair"], arrays["pair_mask"] > 0), mask)
    theirs, weights = "template_pair_stack.", weights_of(arrays)
    rows = [
        *triangle_rows("templates/block_{}", f"{theirs}blocks.{{}}."),
        *transition_rows("templates/block_{}/transition", f"{theirs}blocks.{{}}.pair_transition"),
        *norm("templates/norm", f"{theirs}layer_norm"),
    ]
    read_state(stack, {key: x for key, x in weights.items() if key.startswith(theirs)}, rows)
    theirs = "template_pointwise_attention."
    ours = "attention/attention"
    rows = [
        *linear(f"{ours}/projections/query", f"{theirs}mha.linear_q"),
        *linear(f"{ours}/projections/key_value", f"{theirs}mha.linear_k", f"{theirs}mha.linear_v"),
        *linear(f"{ours}/output", f"{theirs}mha.linear_o"),
    ]
    read_state(attention, {key: x for key, x in weights.items() if key.startswith(theirs)}, rows)
    templates = stack(arrays["template_pair"], arrays["pair_mask"] > 0)
    outputs = {"features/template_pair_stack": templates, "pair_update": attention(pair, templates, mask)}
    return inputs_of(arrays, "template_pair", "pair", "pair_mask", "template_mask"), outputs
