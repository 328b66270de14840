"""Live: ESMFold, its trunk and its block of the structure against transformers', both ways."""

import os

import numpy as np
import pytest
import torch
from transformers import EsmConfig, EsmForProteinFolding
from transformers.models.esm.configuration_esm import StructureModuleConfig, TrunkConfig
from transformers.models.esm.modeling_esmfold import EsmFoldingTrunk

from keras_tfm import convert
from keras_tfm.convert import keymap
from keras_tfm.convert.esmfold import trunk_rows
from keras_tfm.heads import FoldingHead, expected_score, expected_tm
from keras_tfm.models import FoldingTrunk
from keras_tfm.tasks import ProteinFolder
from tests.contract import assert_close
from tests.parity.references.esmfold import STRUCTURE, TRUNK, config_of

pytestmark = pytest.mark.parity
GAMMAS = ("norm.weight", "LayerNorm.weight", ".mlp.0.weight", "lddt_head.0.weight", "_after.weight")
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))


def draw_theirs(rng):
    """(Their trunk with random weights, its arguments)."""

    def number(most):
        return int(rng.integers(1, most + 1))

    heads = {"sequence_head_width": number(4), "pairwise_head_width": 2 * number(2)}
    structure = {name: number(4) for name in STRUCTURE} | {"trans_scale_factor": 10, "dropout_rate": 0.0}
    arguments = {
        **heads,
        "sequence_state_dim": heads["sequence_head_width"] * number(3),
        "pairwise_state_dim": heads["pairwise_head_width"] * number(3),
        "position_bins": number(4),
        "num_blocks": number(2),
        "dropout": 0.0,
    }
    config = TrunkConfig(**arguments, structure_module=StructureModuleConfig(**structure))
    theirs = EsmFoldingTrunk(config).eval()
    draw_weights(theirs, rng)
    names = {*TRUNK, *heads}
    structure = {name: value for name, value in structure.items() if name in STRUCTURE}
    return theirs, {name: arguments[name] for name in names} | {"structure_module": structure}


def draw_weights(theirs, rng):
    """Set all weights at random."""
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            scale = 0.1 if "bb_update" in name else 0.4
            weight.copy_(torch.from_numpy(rng.normal(0, scale, weight.shape).astype("float32")))
            if name.endswith(GAMMAS):
                weight += 1


def draw_whole(rng):
    """Their ESMFold with random weights."""
    trunk, _ = draw_theirs(rng)
    heads = int(rng.integers(1, 4))
    config = EsmConfig(
        vocab_size=33 + int(rng.integers(3)),
        mask_token_id=32,
        pad_token_id=1,
        hidden_size=heads * 2 * int(rng.integers(1, 5)),
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=heads,
        intermediate_size=int(rng.integers(4, 20)),
        position_embedding_type="rotary",
        token_dropout=bool(rng.integers(2)),
        emb_layer_norm_before=bool(rng.integers(2)),
        layer_norm_eps=1e-5,
        is_folding_model=True,
        esmfold_config={
            "trunk": trunk.config.to_dict() | {"max_recycles": int(rng.integers(1, 4))},
            "fp16_esm": False,
            "embed_aa": bool(rng.integers(4)),
            "lddt_head_hid_dim": int(rng.integers(2, 20)),
        },
    )
    theirs = EsmForProteinFolding(config).eval()
    draw_weights(theirs, rng)
    return theirs


@pytest.mark.parametrize("seed", CONFIGS)
def test_whole_folders_in_both_directions(seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = draw_whole(rng)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    assert isinstance(ours, FoldingHead)
    size, length = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    mask = np.arange(length) < rng.integers(1, length + 1, (size, 1))
    mask[0] = True
    inputs = {
        "numbers": rng.integers(0, 21, (size, length)),
        "residue_index": np.cumsum(rng.integers(1, 4, (size, length)), axis=1),
        "padding_mask": mask,
    }
    numbers, places, seen = (torch.from_numpy(x.astype("int64")) for x in inputs.values())
    with torch.no_grad():
        expected = theirs(numbers, seen, places)
    outputs, pairs = ours.fold(inputs), mask[:, :, None] & mask[:, None]
    for theirs_name, name, rows in (
        ("s_s", "sequence_output", mask),
        ("s_z", "pair_output", pairs),
        ("distogram_logits", "distogram_logits", pairs),
        ("ptm_logits", "error_logits", pairs),
        ("lm_logits", "residue_logits", mask),
    ):
        assert_close([np.asarray(outputs[name])[rows]], [expected[theirs_name].numpy()[rows]], 1e-4)
    for name in ("frames", "angles", "positions", "states"):
        moved = np.moveaxis(np.asarray(outputs[name]), 1, 0)
        assert_close([moved[:, mask]], [expected[name].numpy()[:, mask]], 1e-4)
    scores = np.asarray(expected_score(outputs["confidence_logits"]))
    assert_close([scores[mask]], [expected["plddt"].numpy()[mask]], 1e-4)
    if mask.all():  # theirs are of all residues of all proteins at once
        assert_close([np.max(expected_tm(outputs["error_logits"]))], [expected["ptm"].numpy()], 1e-4)

    proteins = ["MKTX", "GW"][: seed % 2 + 1]
    with torch.no_grad():
        expected = theirs.infer(proteins)
    for row, structure in enumerate(ProteinFolder.from_huggingface(tmp_path / "theirs").predict(proteins)):
        rows = row, slice(len(proteins[row]))
        assert_close([structure.positions], [expected["positions"][-1][rows].numpy()], 1e-4)
        assert_close([structure.confidences], [100 * expected["plddt"][rows][:, 1].numpy()], 1e-4)

    convert.save_huggingface(ours, tmp_path / "ours")
    back, report = EsmForProteinFolding.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    for name, weight in back.named_parameters():
        if "contact_head" not in name:
            assert torch.equal(weight, theirs.get_parameter(name)), name
    assert torch.equal(back.af2_to_esm, theirs.af2_to_esm)
    for name in ("trunk", "embed_aa", "lddt_head_hid_dim"):
        one, other = (getattr(x.config.esmfold_config, name) for x in (back, theirs))
        assert (one.to_dict() == other.to_dict()) if name == "trunk" else one == other


@pytest.mark.parametrize("seed", CONFIGS)
def test_both_directions(seed):
    rng = np.random.default_rng(seed)
    theirs, arguments = draw_theirs(rng)
    config = config_of(arguments)
    ours, rows = FoldingTrunk(config), trunk_rows(config)
    weights = {name: x.numpy() for name, x in theirs.state_dict().items()}
    keymap.read_state(ours, weights, rows)
    size, length = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    mask = np.arange(length) < rng.integers(1, length + 1, (size, 1))
    inputs = {
        "sequence": rng.normal(size=(size, length, config.dim)).astype("float32"),
        "pair": rng.normal(size=(size, length, length, config.pair_dim)).astype("float32"),
        "numbers": rng.integers(0, 21, (size, length)),
        "residue_index": np.cumsum(rng.integers(1, 4, (size, length)), axis=1),
        "padding_mask": mask,
    }
    with torch.no_grad():
        given = [torch.from_numpy(x.astype("int64") if x.dtype == bool else x) for x in inputs.values()]
        expected = theirs(*given, no_recycles=1)
    outputs = ours.fold(inputs, 1)
    seen, pairs = mask, mask[:, :, None] & mask[:, None]
    assert_close(
        [np.asarray(outputs["sequence_output"])[seen], np.asarray(outputs["pair_output"])[pairs]],
        [expected["s_s"].numpy()[seen], expected["s_z"].numpy()[pairs]],
        1e-4,
    )
    for name in ("frames", "angles", "positions", "states"):
        moved = np.moveaxis(np.asarray(outputs[name]), 1, 0)
        assert_close([moved[:, seen]], [expected[name].numpy()[:, seen]], 1e-4)
    back = keymap.save(ours, rows)
    assert back.keys() == weights.keys()
    for name, x in back.items():
        np.testing.assert_array_equal(x, weights[name])
