"""What AlphaFold begins and ends with by the names of aqlaboratory/openfold: embedders, heads and losses."""

import keras
import numpy as np
from keras import ops

from keras_tfm import heads
from keras_tfm.convert.keymap import linear, norm, read_state
from keras_tfm.heads import StructureHead
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.frames import frames_of_matrices, frames_of_quaternions
from keras_tfm.layers.residues import residues
from keras_tfm.models import InputEmbedder, RecyclingEmbedder
from keras_tfm.training.model import FunctionalModel
from tests.parity.references.openfold import inputs_of, weights_of
from tests.parity.references.state import check_arguments


def read_embedders(arguments, arrays):
    """The embedders of a chain, of a complex, of the last pass and of the extra alignment."""
    names = {
        "tf_dim", "msa_dim", "c_z", "c_m", "relpos_k", "min_bin", "max_bin", "no_bins", "inf",
        "extra_msa_dim", "c_e", "max_relative_idx", "use_chain_relative", "max_relative_chain",
    }  # fmt: skip
    check_arguments(arguments, names, "embedders")
    dims = arguments["c_m"], arguments["c_z"]
    single = InputEmbedder(*dims, arguments["relpos_k"], name="single")
    limits = arguments["max_relative_idx"], arguments["max_relative_chain"]
    many = InputEmbedder(*dims, *limits, name="many")
    bins = [arguments[name] for name in ("no_bins", "min_bin", "max_bin")]
    recycling = RecyclingEmbedder(*bins, name="recycling")
    extra = Dense(arguments["c_e"], name="extra")
    features = [arrays[name] for name in ("target_feat", "msa_feat", "residue_index")]
    chains = np.stack([arrays[name] for name in ("asym_id", "entity_id", "sym_id")], axis=-1)
    previous = "previous_msa_first_row", "previous_pair", "previous_pseudo_beta"
    calls = {
        "input_embedder": (single, features, embedder_rows),
        "multimer_embedder": (many, [*features, chains], embedder_rows),
        "recycling_embedder": (recycling, [arrays[name] for name in previous], recycling_rows),
        "extra_msa_embedder": (extra, [arrays["extra_msa_feat"]], extra_rows),
    }
    found = {}
    for name, (layer, tensors, rows) in calls.items():
        layer(*tensors)
        weights = {key: x for key, x in weights_of(arrays).items() if key.startswith(f"{name}.")}
        read_state(layer, weights, rows(layer.name, f"{name}."))
        found[name] = layer(*tensors)
    outputs = {
        "msa": found["input_embedder"][0],
        "pair": found["input_embedder"][1],
        "multimer_msa": found["multimer_embedder"][0],
        "multimer_pair": found["multimer_embedder"][1],
        "recycled_msa_update": found["recycling_embedder"][0],
        "recycled_pair_update": found["recycling_embedder"][1],
        "extra_msa": found["extra_msa_embedder"],
    }
    return [name for name in arrays if name not in outputs], outputs


def embedder_rows(ours, theirs):
    """An `InputEmbedder`."""
    return [
        *linear(f"{ours}/target_row", f"{theirs}linear_tf_z_i"),
        *linear(f"{ours}/target_column", f"{theirs}linear_tf_z_j"),
        *linear(f"{ours}/target", f"{theirs}linear_tf_m"),
        *linear(f"{ours}/msa", f"{theirs}linear_msa_m"),
        *linear(f"{ours}/position", f"{theirs}linear_relpos"),
    ]


def recycling_rows(ours, theirs):
    """A `RecyclingEmbedder`."""
    return [
        *linear(f"{ours}/distance", f"{theirs}linear"),
        *norm(f"{ours}/msa_norm", f"{theirs}layer_norm_m"),
        *norm(f"{ours}/pair_norm", f"{theirs}layer_norm_z"),
    ]


def extra_rows(ours, theirs):
    """The dense layer of the extra alignment."""
    return linear(ours, f"{theirs}linear")


def read_heads(arguments, arrays):
    """The head around a model that passes its inputs on."""
    names = {"c_s", "c_z", "c_m", "lddt_bins", "lddt_hidden", "distogram_bins", "tm_bins"}
    check_arguments(arguments, names, "heads")
    symbols = {name: keras.Input(arrays[name].shape[1:], name=name) for name in ("single", "pair", "msa")}
    passed = {
        "sequence_output": symbols["single"],
        "pair_output": symbols["pair"],
        "msa_output": symbols["msa"],
        "states": symbols["single"][:, None],
    }
    model = StructureHead(
        FunctionalModel(symbols, passed),
        *(arguments[name] for name in ("lddt_bins", "lddt_hidden", "distogram_bins", "tm_bins")),
    )
    rows = [
        *norm("confidence_head/layer_0", "plddt.layer_norm"),
        *(row for i in (1, 2, 3) for row in linear(f"confidence_head/layer_{i}", f"plddt.linear_{i}")),
        *linear("distogram_head/projection", "distogram.linear"),
        *linear("error_head", "tm.linear"),
        *linear("msa_head", "masked_msa.linear"),
        *linear("resolved_head", "experimentally_resolved.linear"),
    ]
    read_state(model, weights_of(arrays), rows)
    outputs = model({name: ops.convert_to_tensor(arrays[name]) for name in symbols})
    found = {
        "lddt_logits": outputs["confidence_logits"],
        "distogram_logits": outputs["distogram_logits"],
        "tm_logits": outputs["error_logits"],
        "masked_msa_logits": outputs["msa_logits"],
        "experimentally_resolved_logits": outputs["resolved_logits"],
        "plddt": 100 * heads.expected_score(outputs["confidence_logits"]),
    }
    return inputs_of(arrays, *symbols), found


def read_losses(arguments, arrays):
    """All losses and scores, and the table of angles that half a turn leaves as they are."""
    names = {
        "clamp", "length_scale", "fape_eps", "chi_weight", "angle_norm_weight", "chi_eps", "lddt_bins",
        "lddt_cutoff", "min_resolution", "max_resolution", "distogram_bins", "tm_bins", "tm_max",
        "num_classes",
    }  # fmt: skip
    check_arguments(arguments, names, "losses")
    clamp, *fape = (arguments[name] for name in ("clamp", "length_scale", "fape_eps"))
    # Layers come first in theirs.
    by_layer = "trajectory", "sidechain_frames", "sidechain_positions", "angles", "unnormalized_angles"
    x = {name: np.moveaxis(y, 1, 0) if name in by_layer else y for name, y in arrays.items()}
    last = frames_of_quaternions(x["trajectory"][:, -1])
    true, mask = frames_of_matrices(x["true_backbone"]), x["backbone_mask"]
    pair = last, true, mask, last.translation, true.translation, mask
    backbone = x["trajectory"], x["true_backbone"], mask
    better = x["alternative_is_better"][..., None, None, None]
    sidechains = (1 - better) * x["true_sidechain_frames"] + better * x["alternative_sidechain_frames"]
    resolution = x["resolution"], (arguments["min_resolution"], arguments["max_resolution"])
    alpha = [x[name][:, :, 1] for name in ("atom37", "true_atom37", "atom37_mask")]
    distances = x["pseudo_beta"], x["pseudo_beta_mask"], *arguments["distogram_bins"][:2]
    farthest = arguments["tm_max"]
    angle_options = [arguments[name] for name in ("angle_norm_weight", "chi_weight", "chi_eps")]
    # Their einsum adds the flags of all examples of a batch; one example has its own alone.
    half_turns = residues().half_turns[x["aatype"]].sum(axis=0, keepdims=True)
    chi = [x[name] for name in ("angles", "unnormalized_angles", "true_chi", "chi_mask")]
    chi += [half_turns, x["backbone_mask"]]
    outputs = {
        "fape_backbone_clamped": heads.backbone_error(*backbone, None, clamp, *fape),
        "fape_backbone_mixed": heads.backbone_error(*backbone, x["use_clamped"], clamp, *fape),
        "chi_loss": heads.torsion_loss(*chi, *angle_options),
        "lddt_loss": heads.confidence_loss(x["lddt_logits"], *alpha, *resolution, arguments["lddt_cutoff"]),
        "distogram_loss": heads.distogram_loss(x["distogram_logits"], *distances),
        "masked_msa_loss": heads.masked_msa_loss(x["masked_msa_logits"], x["true_msa"], x["bert_mask"]),
        "tm_loss": heads.aligned_error_loss(
            x["tm_logits"], x["trajectory"][:, -1], x["true_backbone"], mask, *resolution, farthest
        ),
    }
    outputs = {name: ops.mean(y) for name, y in outputs.items()}
    outputs |= {
        "fape_raw_clamped": heads.frame_aligned_error(*pair, clamp, *fape),
        "fape_raw_unclamped": heads.frame_aligned_error(*pair, None, *fape),
        "fape_sidechain": heads.sidechain_error(
            x["sidechain_frames"][:, -1],
            sidechains,
            x["sidechain_frames_mask"],
            x["sidechain_positions"][:, -1],
            x["true_positions"],
            x["positions_mask"],
            clamp,
            *fape,
        ),
        "lddt": heads.local_distance_score(*alpha, arguments["lddt_cutoff"]),
        "plddt": 100 * heads.expected_score(x["lddt_logits"]),
        "predicted_aligned_error": heads.expected_aligned_error(x["tm_logits"], farthest),
        "ptm": heads.expected_tm(x["tm_logits"], farthest=farthest),
        "constants/chi_pi_periodic": residues().half_turns,
    }
    return [name for name in arrays if name not in outputs], outputs
