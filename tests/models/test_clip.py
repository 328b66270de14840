"""CLIP: the contract, its sizes, its towers alone, where a text ends."""

import numpy as np
import pytest

from keras_tfm.heads import Contrastive
from keras_tfm.models import CLIP, CLIPConfig
from tests import contract
from tests.contract import Case, floats, ids, mask

SMALL = CLIPConfig((4, 6), 2, 1, 1, 8, 2, 12, 11, 9, 1, 6, 3, 10, embedding_dim=4, end_id=10)
INPUTS = {"images": floats(4, 6, 1), "token_ids": ids("T", 11), "padding_mask": mask("T")}

test_contract = contract.check_family(Case("CLIP", lambda: CLIP(SMALL), INPUTS, attends=True))


def count(model):
    return contract.num_parameters(model.trainable_weights)


# transformers' counts; the head has one weight, the logits' scale.
@pytest.mark.parametrize(("size", "expected"), [("B/32", 151_277_313), ("L/14", 427_616_513)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    assert count(Contrastive(CLIP.from_size(size))) == expected


@pytest.fixture(scope="module")
def clip():
    model = CLIP(SMALL)
    contract.randomise(model, seed=0)
    return model


def test_towers_alone_are_those_of_the_whole(clip):
    rng = np.random.default_rng(0)
    images = rng.random((3, 4, 6, 1), "float32")
    token_ids = rng.integers(0, 11, (3, 5))
    outputs = clip({"images": images, "token_ids": token_ids})
    assert outputs["image_sequence_output"].shape == (3, 7, 8)
    assert outputs["text_sequence_output"].shape == (3, 5, 6)
    for side, inputs in (("image", {"images": images}), ("text", {"token_ids": token_ids})):
        tower = getattr(clip, side)
        alone = tower(inputs)
        assert alone.keys() == {"sequence_output", "pooled_output", "embeddings"}
        for name, x in alone.items():
            np.testing.assert_array_equal(x, outputs[f"{side}_{name}"])
        np.testing.assert_allclose(np.linalg.norm(alone["embeddings"], axis=1), 1, atol=1e-6)
        assert tower.blocks[""] == clip.blocks[side]
    assert count(clip.image) + count(clip.text) == count(clip)


def test_a_text_is_its_state_at_the_first_end_or_at_its_last_token(clip):
    token_ids = np.array([[1, 10, 10, 2], [10, 1, 2, 3], [1, 2, 3, 4], [1, 2, 10, 10]])
    padding_mask = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]], bool)
    outputs = clip.text({"token_ids": token_ids, "padding_mask": padding_mask})
    expected = np.asarray(outputs["sequence_output"])[range(4), [1, 0, 2, 1]]
    np.testing.assert_array_equal(outputs["pooled_output"], expected)


def test_no_token_sees_what_comes_later(clip):
    token_ids = np.random.default_rng(0).integers(0, 10, (2, 6))
    states = clip.text({"token_ids": token_ids})["sequence_output"]
    token_ids[:, 4:] += 1
    np.testing.assert_array_equal(
        clip.text({"token_ids": token_ids})["sequence_output"][:, :4], states[:, :4]
    )


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="num_text_heads"):
        CLIPConfig(num_text_heads=7)
    with pytest.raises(ValueError, match="end_id"):
        CLIPConfig(vocabulary_size=100, end_id=100)
