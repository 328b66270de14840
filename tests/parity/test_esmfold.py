"""Live: ESMFold's trunk and its block of the structure against transformers', both ways."""

import os

import numpy as np
import pytest
import torch
from transformers.models.esm.configuration_esm import StructureModuleConfig, TrunkConfig
from transformers.models.esm.modeling_esmfold import EsmFoldingTrunk

from keras_tfm.convert import keymap
from keras_tfm.convert.esmfold import trunk_rows
from keras_tfm.models import FoldingTrunk
from tests.contract import assert_close
from tests.parity.references.esmfold import STRUCTURE, TRUNK, config_of

pytestmark = pytest.mark.parity
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
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            scale = 0.1 if "bb_update" in name else 0.4
            weight.copy_(torch.from_numpy(rng.normal(0, scale, weight.shape).astype("float32")))
            if name.endswith("norm.weight") or ".mlp.0.weight" in name:
                weight += 1
    names = {*TRUNK, *heads}
    structure = {name: value for name, value in structure.items() if name in STRUCTURE}
    return theirs, {name: arguments[name] for name in names} | {"structure_module": structure}


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
