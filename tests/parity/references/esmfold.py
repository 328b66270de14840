"""ESMFold's block and trunk by their names in transformers."""

import numpy as np
from keras import ops

from keras_tfm.convert.esmfold import block_rows, trunk_rows
from keras_tfm.convert.keymap import embedding, read_state
from keras_tfm.heads.structure import expected_score
from keras_tfm.layers.frames import distance_bins
from keras_tfm.models import FoldingTrunk, FoldingTrunkConfig, PairPositionTable
from keras_tfm.models.proteins.folding_trunk import FARTHEST, NEAREST, folding_block
from tests.parity.references.openfold import PAIR_PARTS, inputs_of, layers_first, run_parts, weights_of
from tests.parity.references.state import check_arguments

TRUNK = {
    "sequence_state_dim": "dim",
    "pairwise_state_dim": "pair_dim",
    "sequence_head_width": "head_dim",
    "pairwise_head_width": "pair_head_dim",
    "position_bins": "position_limit",
    "num_blocks": "num_layers",
}
STRUCTURE = {
    "sequence_dim": "structure_dim",
    "pairwise_dim": "structure_pair_dim",
    "ipa_dim": "structure_head_dim",
    "resnet_dim": "angle_dim",
    "num_heads_ipa": "num_structure_heads",
    "num_qk_points": "num_query_points",
    "num_v_points": "num_value_points",
    "num_blocks": "num_structure_layers",
    "num_transition_layers": "num_transitions",
    "num_resnet_blocks": "num_angle_blocks",
    "trans_scale_factor": "scale",
}


def config_of(arguments):
    """Our configuration for their arguments."""
    structure = arguments.get("structure_module", {})
    check_arguments(arguments, {*TRUNK, "structure_module", "recycles", "lddt_bins"}, "ESMFold")
    check_arguments(structure, {*STRUCTURE, "epsilon", "inf", "num_angles"}, "ESMFold's structure module")
    fields = {ours: arguments[theirs] for theirs, ours in TRUNK.items() if theirs in arguments}
    fields |= {ours: structure[theirs] for theirs, ours in STRUCTURE.items() if theirs in structure}
    return FoldingTrunkConfig(**fields)


def read_block(arguments, arrays):
    """One block, what its parts add, positions along the chain, and the mean score of a residue's atoms."""
    config = config_of(arguments)
    block = folding_block(config, "block")
    position = PairPositionTable(config.pair_dim, config.position_limit, name="position")
    sequence, pair = arrays["sequence"], arrays["pair"]
    places = position(arrays["residue_index"])
    pair = pair + places
    block(sequence, pair)
    weights = weights_of(arrays)
    num_heads = config.dim // config.head_dim
    read_state(block, _under(weights, "block."), block_rows("block", "block.", num_heads, config.head_dim))
    rows = embedding("position/embedding", "position.embedding")
    read_state(position, _under(weights, "position."), rows)
    places = position(arrays["residue_index"])
    sequence, pair = arrays["sequence"], arrays["pair"] + places
    outputs = block(sequence, pair)
    bias, features = block.pair_bias(pair), {}
    features["features/pair_to_sequence"] = ops.transpose(bias, (0, 2, 3, 1))
    attention = block.sequence.parts["attention"]
    added = attention.branch(attention.before(sequence), bias=bias)
    features["features/seq_attention"] = added
    sequence = block.sequence.parts["transition"](sequence + added)
    features["features/sequence_to_pair"] = block.to_pair(sequence)
    names = {theirs: ours for theirs, ours in PAIR_PARTS.items() if ours != "transition"}
    run_parts(block.pair, pair + block.to_pair(sequence), None, names, {}, features)
    return inputs_of(arrays, "sequence", "pair", "residue_index", "lddt_logits"), features | {
        "sequence_output": outputs[0],
        "pair_output": outputs[1],
        "position": places,
        "lddt": expected_score(arrays["lddt_logits"]),
    }


def read_trunk(arguments, arrays):
    """The trunk after some passes."""
    config = config_of(arguments)
    model = FoldingTrunk(config)
    read_state(model, weights_of(arrays), trunk_rows(config))
    inputs = {name: arrays[name] for name in ("sequence", "pair", "residue_index")}
    inputs |= {"numbers": arrays["aatype"], "padding_mask": arrays["mask"] > 0}
    found = {}
    for count in arguments["recycles"]:
        outputs = model.fold(inputs, count)
        layers = {name: outputs[name] for name in ("frames", "angles", "positions")}
        layers = layers_first(layers, np.ones_like(arrays["mask"]))
        ends = {"s_s": "sequence_output", "s_z": "pair_output"}
        layers |= {theirs: outputs[ours] for theirs, ours in ends.items()}
        layers["distogram"] = distance_bins(outputs["betas"], NEAREST, FARTHEST, config.num_bins)
        found |= {f"recycles_{count}/{name}": x for name, x in layers.items()}
    return inputs_of(arrays, "sequence", "pair", "residue_index", "aatype", "mask"), found


def _under(weights, prefix):
    return {key: x for key, x in weights.items() if key.startswith(prefix)}
