"""ESMFold: its count, tokens, one question to ESM-2 for all passes; transformers' numbers are compared in
tests/parity.
"""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_tfm.convert import CheckpointError, from_huggingface, save_huggingface
from keras_tfm.data.tokenizers.residues import VOCABULARY as OF_TOKENIZER
from keras_tfm.heads import FoldingHead
from keras_tfm.models import ESM2Config, ESMFold, ESMFoldConfig
from keras_tfm.models.proteins.esm2 import VOCABULARY
from keras_tfm.models.proteins.esmfold import ProteinTokens
from keras_tfm.training.safetensors import read_json
from tests import contract
from tests.contract import Case, assert_close, floats, ids, mask, randomise
from tests.models.test_folding_trunk import SMALL as SMALL_TRUNK

TRUNK = dataclasses.replace(SMALL_TRUNK, expansion=4, num_bins=15)
SMALL = ESMFoldConfig(ESM2Config(33, 1, 8, 2, 12), TRUNK, num_recycles=1)
INPUTS = {
    "numbers": ids("T", 21),
    "residue_index": ids("T", 9),
    "padding_mask": mask("T"),
    "previous_sequence": floats("T", 8),
    "previous_pair": floats("T", "T", 6),
    "previous_betas": floats("T", 3),
}
# Its parts are under contract themselves.
test_contract = pytest.mark.slow(
    contract.check_family(
        Case(
            "ESMFold",
            lambda: ESMFold(SMALL),
            INPUTS,
            attends=True,
            chooses=True,  # places of atoms are in float32
            without_effect=("pair_bias/norm/beta", "pair_bias/bias"),
        )
    )
)


def test_parameters_of_the_published_size(no_allocation):
    """The released model's, without 1,441 weights for contacts, which it does not use."""
    config = ESMFold.sizes["esmfold"]
    trunk = dataclasses.replace(config.trunk, num_layers=1, num_structure_layers=1)
    model = FoldingHead(ESMFold(dataclasses.replace(config, trunk=trunk)))
    assert (
        model.count_params() + 47 * model.backbone.get_layer("block_0").count_params()
        == 3_525_038_915 - 1_441
    )


@pytest.fixture(scope="module")
def model():
    model = FoldingHead(ESMFold(SMALL), confidence_dim=3)
    randomise(model, 1)
    return model


def draw(length=4, size=2):
    return {
        "numbers": np.random.default_rng(0).integers(0, 21, (size, length)),
        "residue_index": np.tile(np.arange(length), (size, 1)),
        "padding_mask": np.ones((size, length), "bool"),
    }


def test_passes_are_those_of_the_whole_model(model):
    inputs = {name: ops.convert_to_tensor(x) for name, x in draw().items()}
    first = model(inputs | model.backbone.start(inputs["numbers"]))
    previous = {name: first[key] for name, key in model.backbone.recycled.items()}
    second = model(inputs | previous)
    outputs = model.fold(inputs)
    assert outputs.keys() == second.keys() and outputs["confidence_logits"].shape == (2, 4, 37, 50)
    for name in ("positions", "distogram_logits", "confidence_logits"):
        assert_close([outputs[name]], [second[name]], 1e-5)
        assert np.abs(np.asarray(second[name]) - first[name]).max() > 1e-3
    with pytest.raises(ValueError, match="`num_recycles` must be at least 0; it is -1"):
        model.fold(inputs, -1)


def test_tokens_stand_between_start_and_end():
    assert VOCABULARY == OF_TOKENIZER
    seen = np.array([[True, True, True], [True, False, False]])
    token_ids, mask = ProteinTokens(VOCABULARY, 1)(np.array([[0, 19, 20], [12, 5, 5]]), seen)
    assert np.asarray(token_ids).tolist() == [[0, 5, 7, 24, 2], [0, 20, 2, 1, 1]]
    assert np.asarray(mask).tolist() == [[True] * 5, [True] * 3 + [False] * 2]


def test_what_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match="`vocabulary` must have a token for each residue; 'A' is missing"):
        ESMFoldConfig(vocabulary=["<cls>", "<eos>"])
    with pytest.raises(ValueError, match="at most ESM-2's 30 tokens; it has 33"):
        ESMFoldConfig(ESM2Config(30, mask_id=2))
    save_huggingface(model, tmp_path / "folder")
    path, entries = tmp_path / "folder" / "config.json", read_json(tmp_path / "folder" / "config.json")
    text = path.read_text()
    for old, new, key in (
        ('"bypass_lm": false', '"bypass_lm": true', "esmfold_config.bypass_lm: expected False, got True"),
        ('"max_recycles": 2', '"max_recycles": 0', "esmfold_config.trunk.max_recycles: expected a number"),
        ('"num_qk_points": 2', '"num_qk_points": 0', "esmfold_config.trunk.structure_module.num_qk_points"),
    ):
        assert old in text, entries
        path.write_text(text.replace(old, new))
        with pytest.raises(CheckpointError, match=key):
            from_huggingface(tmp_path / "folder")
