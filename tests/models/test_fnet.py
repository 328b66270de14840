"""FNet: its published sizes, what it mixes, its checkpoints both ways."""

import dataclasses
import json

import numpy as np
import pytest

from keras_tfm.heads import Classifier, MaskedLM
from keras_tfm.models import FNet, FNetConfig
from tests import contract
from tests.contract import Case, ids, mask, randomise
from tests.models.folders import check_both_ways

TINY = FNetConfig(11, num_layers=2, dim=8, intermediate_dim=12, max_length=16, num_segments=2)
INPUTS = {"token_ids": ids("T", 11), "padding_mask": mask("T"), "segment_ids": ids("T", 2)}

test_contract = contract.check_family(Case("FNet", lambda: FNet(TINY), INPUTS, mixes_padding=True))


# Lee-Thorp et al. 2022, table 1: 83 M and 238 M.
@pytest.mark.parametrize(("size", "count"), [("base", 82_861_056), ("large", 236_945_408)])
def test_parameters_of_the_published_sizes(size, count, no_allocation):
    assert contract.num_parameters(FNet.from_size(size).trainable_weights) == count


def test_padding_is_mixed_in_whatever_the_mask():
    model = FNet(TINY)
    randomise(model, 0)
    token_ids = np.array([[1, 2, 3, 0]])
    masks = np.array([[True, True, True, False]]), np.ones((1, 4), "bool")
    outputs = [model({"token_ids": token_ids, "padding_mask": mask})["sequence_output"] for mask in masks]
    np.testing.assert_array_equal(*outputs)
    other = model({"token_ids": np.array([[1, 2, 3, 5]])})["sequence_output"]
    assert np.abs(np.asarray(other)[:, :3] - np.asarray(outputs[0])[:, :3]).max() > 0.01
    classifier = Classifier(model, 3, pooling="mean")  # which does heed the mask
    logits = [classifier({"token_ids": token_ids, "padding_mask": mask}) for mask in masks]
    assert np.abs(np.asarray(logits[0]) - np.asarray(logits[1])).max() > 1e-4


def test_the_transform_alone_mixes_tokens():
    """By hand: what the first part of a block adds is the real part of a transform of its input."""
    (block, _) = FNet(TINY).blocks["encoder"]
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    total = x + np.fft.fft2(x).real
    expected = (total - total.mean(-1, keepdims=True)) / total.std(-1, keepdims=True)
    np.testing.assert_allclose(block.attention(x), expected, atol=1e-5)
    assert not block.attention.weights[2:]  # but for its norm's gain and bias


@pytest.mark.parametrize("make", [FNet, lambda config: MaskedLM(FNet(config), next_sentence=True)])
def test_folders_of_transformers_both_ways(make, tmp_path):
    model = make(TINY) if make is FNet else make(dataclasses.replace(TINY, dropout=0.3))
    check_both_ways(model, tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert (entries["model_type"], entries["hidden_act"], entries["type_vocab_size"]) == (
        "fnet",
        "gelu_new",
        2,
    )


def test_refusals():
    with pytest.raises(ValueError, match="no size 'small'; it has base, large"):
        FNet.from_size("small")
    with pytest.raises(ValueError, match="`dim` must be at least 1; it is 0"):
        FNetConfig(dim=0)
