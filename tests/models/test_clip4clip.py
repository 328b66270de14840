"""CLIP4Clip: the contract, what its blocks add, frames and their order, a start from CLIP."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.heads import Contrastive
from keras_tfm.models import CLIP, CLIP4Clip, CLIP4ClipConfig
from tests import contract
from tests.contract import Case, floats, ids, mask
from tests.models import test_clip

SMALL = CLIP4ClipConfig(**dataclasses.asdict(test_clip.SMALL), num_frames=3, num_frame_layers=1, max_frames=9)
INPUTS = {
    "videos": floats(3, 4, 6, 1),
    "frame_mask": mask(3),
    "token_ids": ids("T", 11),
    "padding_mask": mask("T"),
}

STEM = dataclasses.replace(SMALL, image_size=(4, 8), patch_size=(2, 4), stem=((4, 2), (6, 1)))

test_contract = contract.check_family(Case("CLIP4Clip", lambda: CLIP4Clip(SMALL), INPUTS, attends=True))

test_contract_of_a_stem = pytest.mark.slow(
    contract.check_family(
        Case(
            "stem",
            lambda: CLIP4Clip(STEM),
            INPUTS | {"videos": floats(3, 4, 8, 1)},
            attends=True,
            convolves=True,
        )
    )
)


@pytest.fixture(scope="module", params=[0, 1])
def model(request):
    made = CLIP4Clip(dataclasses.replace(SMALL, num_frame_layers=request.param))
    contract.randomise(made, seed=0)
    return made


def draw(count=2, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "videos": rng.random((count, 3, 4, 6, 1), "float32"),
        "token_ids": rng.integers(0, 11, (count, 5)),
    }


def test_blocks_over_frames_add_the_papers_weights(no_allocation):
    """Four blocks 512 wide, and 77 positions."""
    plain, added = (CLIP4Clip.from_size(size) for size in ("B/32", "B/32-seqTransf"))
    assert plain.count_params() == CLIP.from_size("B/32").count_params()
    assert added.count_params() - plain.count_params() == 12_648_960


def test_vectors_of_clips_are_means_of_clips_images(model):
    """By hand: CLIP's vector of each frame, their mean over the frames that are there, at unit length."""
    inputs = draw() | {"frame_mask": np.array([[True, True, False], [False, True, False]])}
    clip = CLIP(test_clip.SMALL)
    for weight in clip.weights:
        weight.assign(next(x for x in model.weights if x.path == weight.path))
    frames = clip.image({"images": inputs["videos"].reshape(6, 4, 6, 1)})["embeddings"]
    frames, there = np.asarray(frames).reshape(2, 3, -1), inputs["frame_mask"][..., None]
    means = (frames * there).sum(1) / there.sum(1)
    means /= np.linalg.norm(means, axis=-1, keepdims=True)
    is_plain = model.config.num_frame_layers == 0
    found = np.asarray(model(inputs)["video_embeddings"])
    assert np.allclose(found, means, atol=1e-5) == is_plain
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, atol=1e-5)
    del inputs["token_ids"]
    np.testing.assert_allclose(model.video(inputs)["embeddings"], found, atol=1e-6)


def test_the_order_of_frames_counts_where_blocks_read_them(model):
    inputs = draw()
    before, after = (
        model.video({"videos": videos})["embeddings"]
        for videos in (inputs["videos"], inputs["videos"][:, ::-1])
    )
    assert np.allclose(before, after, atol=1e-5) == (model.config.num_frame_layers == 0)


def test_frames_that_only_fill_up_change_nothing(model):
    inputs = draw() | {"frame_mask": np.array([[True, True, False], [False, False, False]])}
    before = np.asarray(model(inputs)["video_embeddings"])
    inputs["videos"][:, 2] = 5.0
    np.testing.assert_array_equal(model(inputs)["video_embeddings"], before)
    np.testing.assert_array_equal(before[1], 0)  # no frame at all


def test_logits_of_any_numbers_of_clips_and_texts(model):
    scorer = Contrastive(model, logit_scale=0.5)
    videos, token_ids = draw(3)["videos"], draw(4)["token_ids"]
    clips = np.asarray(model.video({"videos": videos})["embeddings"])
    texts = np.asarray(model.text({"token_ids": token_ids})["embeddings"])
    expected = np.exp(0.5) * clips @ texts.T
    np.testing.assert_allclose(scorer({"videos": videos, "token_ids": token_ids}), expected, atol=1e-5)


def test_a_stem_leaves_the_patches_where_they_are():
    """Nine weights of each pair of channels, four of each norm; patches of 1 x 2 cells of 6 numbers."""
    model, none = CLIP4Clip(STEM), CLIP4Clip(dataclasses.replace(STEM, stem=()))
    of_stem = (9 * 1 * 4 + 4 * 4) + (9 * 4 * 6 + 4 * 6)
    pixels, cells = 2 * 4 * 1, 1 * 2 * 6
    assert model.count_params() == none.count_params() + of_stem + (cells - pixels) * STEM.image_dim
    with pytest.raises(ValueError, match=r"strides of `stem`, 4 in all, must divide .* they are \(2, 4\)"):
        dataclasses.replace(STEM, stem=((4, 4),))


def test_positions_of_what_is_seen_begin_with_the_spread_asked_for():
    keras.utils.set_random_seed(0)
    model = CLIP4Clip(dataclasses.replace(SMALL, max_frames=77, position_stddev=1.0))
    tables = {weight.path: np.std(weight) for weight in model.weights if "position" in weight.path}
    of_text = tables.pop("text_embedding/position/embedding/embeddings")
    assert of_text < 0.05 and len(tables) == 2 and all(0.6 < spread < 1.5 for spread in tables.values())


def test_a_start_from_clip():
    """Where shapes are equal, the blocks over the frames, and their positions, begin as the texts' do."""
    sizes = {"text_dim": 4, "num_text_heads": 1, "text_intermediate_dim": 16, "num_text_layers": 2}
    clip = CLIP(dataclasses.replace(test_clip.SMALL, max_length=77, **sizes))
    contract.randomise(clip, seed=0)
    made = CLIP4Clip.around(clip, num_frames=3, num_frame_layers=1)
    given = {weight.path: np.asarray(weight) for weight in clip.weights}
    weights = {weight.path: np.asarray(weight) for weight in made.weights}
    for path, x in given.items():
        np.testing.assert_array_equal(weights.pop(path), x)
    assert len(weights) == 13  # the positions, and 12 of the block
    position = weights.pop("frame_position/embedding/embeddings")
    np.testing.assert_array_equal(position, given["text_embedding/position/embedding/embeddings"])
    for path, x in weights.items():
        np.testing.assert_array_equal(x, given[path.replace("frame_", "text_")])


def test_more_frames_than_positions_are_refused():
    with pytest.raises(ValueError, match="`num_frames` must be at most `max_frames`, 77; it is 78"):
        CLIP4ClipConfig(num_frames=78)
