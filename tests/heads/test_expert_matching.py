"""Matching by experts: the contract, similarities and the loss by hand, experts that say nothing."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.heads import ExpertMatcher, MarginRanking, expert_similarity
from keras_tfm.models import MMT, BERTConfig, MMTConfig
from tests import contract
from tests.contract import Case
from tests.models import test_mmt

CASE = Case("experts", lambda: ExpertMatcher(MMT(test_mmt.SMALL)), test_mmt.INPUTS, attends=True,
            compares=True)  # fmt: skip
test_contract = contract.check_family(CASE)


def draw():
    rng = np.random.default_rng(0)
    videos, texts = (rng.normal(size=(count, 3, 4)).astype("float32") for count in (4, 2))
    experts = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 0], [0, 0, 0]], "float32")
    return videos, experts, texts, 3 * rng.normal(size=(2, 3)).astype("float32")


def test_similarities_by_their_formula():
    """A softmax over all experts, divided by its sum over the experts that the video has."""
    videos, experts, texts, logits = draw()
    weights = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = np.zeros((4, 2))
    for i, t in np.ndindex(3, 2):
        products = [videos[i, n] @ texts[t, n] for n in range(3)]
        there = weights[t] * experts[i]
        expected[i, t] = (there * products).sum() / there.sum()
    np.testing.assert_allclose(expert_similarity(videos, experts, texts, logits), expected, atol=1e-6)


def test_an_expert_that_a_video_lacks_changes_nothing_to_the_last_bit():
    videos, experts, texts, logits = draw()
    before = np.asarray(expert_similarity(videos, experts, texts, logits))
    videos[1, 1] = videos[2, 0] = 1e3
    np.testing.assert_array_equal(expert_similarity(videos, experts, texts, logits), before)
    logits[:, 1] = 1e4  # the second video lacks it, and the text wants nothing else
    assert np.isfinite(expert_similarity(videos, experts, texts, logits)).all()
    alone = expert_similarity(*(x[..., [0, 2], :] if x.ndim == 3 else x[:, [0, 2]] for x in draw()))
    np.testing.assert_allclose(before[[1, 3]], np.asarray(alone)[[1, 3]], atol=1e-6)


def test_gradients_are_finite_where_a_video_has_no_expert():
    videos, experts, texts, logits = map(tf.constant, draw())
    with tf.GradientTape() as tape:
        tape.watch([videos, texts, logits])
        loss = MarginRanking(9.0)(np.zeros(2), expert_similarity(videos, experts, texts, logits)[2:])
    gradients = tape.gradient(loss, [videos, texts, logits])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_array_equal(gradients[0][3], np.zeros((3, 4)))


def test_the_loss_by_hand():
    """Margin 0.25. Of the first pair a text is 0.25 too near, of the second a video 0.5 too near and a text
    as near as may be, of the third nothing.
    """
    similarities = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.0], [0.25, 0.25, 1.0]])
    first = 0.25 + 0.0  # texts 0.5, 0.0; videos 0.0, 0.25
    second = 0.0 + 0.0 + 0.5 + 0.25  # texts 0.0, 0.0; videos 0.5, 0.25
    loss = MarginRanking(0.25)
    np.testing.assert_allclose(loss.call(None, similarities), [first, second, 0.0])
    np.testing.assert_allclose(loss(np.zeros(3), similarities), (first + second) / 3)
    np.testing.assert_allclose(loss(np.zeros(3), similarities.T), (first + second) / 3)
    assert MarginRanking.from_config(loss.get_config()).margin == 0.25


def test_similarities_of_any_numbers_of_videos_and_texts():
    """Three videos and two texts, each through its own tower."""
    inputs, backbone = CASE.draw(), CASE.model.backbone
    inputs["sound_feature_mask"][1] = False
    inputs |= {name: inputs[name][:2] for name in backbone.text.input}
    videos, texts = (
        side({name: inputs[name] for name in side.input}) for side in (backbone.video, backbone.text)
    )
    similarities = expert_similarity(*videos.values(), *texts.values())
    assert similarities.shape == (3, 2)
    np.testing.assert_allclose(CASE.model(inputs), similarities, atol=1e-6)


def shown(pairs, rng, count=5):
    """Videos of colours, which one expert sees, and motions, which the other sees, and texts of both."""
    names, size = 1 + pairs + count * np.arange(2), len(pairs)
    inputs = {"token_ids": np.insert(names, 0, 0, axis=1)}
    for number, name in enumerate(("colour", "motion")):
        features = rng.normal(0, 0.5, (size, 3, count)) + 2 * np.eye(count)[pairs[:, number]][:, None]
        is_there = rng.random((size, 3)) < 0.7
        is_there[:, 0] = True
        inputs |= {f"{name}_features": features.astype("float32"), f"{name}_feature_mask": is_there}
    return inputs


@pytest.mark.slow
def test_it_finds_texts_for_pairs_that_it_never_saw():
    """Of 25 pairs of a colour and a motion five are held out; all 25 texts are to choose from."""
    keras.utils.set_random_seed(0)
    rng, pairs = np.random.default_rng(0), np.stack(np.divmod(np.arange(25), 5), axis=-1)
    is_held_out = pairs[:, 1] == (pairs[:, 0] + 2) % 5
    text = BERTConfig(11, 1, 32, 2, 64, max_length=4, num_segments=0, pooler=False, dropout=0.0)
    config = MMTConfig(text, ("colour", "motion"), (5, 5), 6, 1, 32, 2, 64, dropout=0.0)
    model = ExpertMatcher(MMT(config)).learner()
    model.compile(keras.optimizers.Adam(3e-3), MarginRanking(0.2))
    for _ in range(80):
        model.train_on_batch(shown(rng.permutation(pairs[~is_held_out]), rng), np.zeros(20))
    best = np.asarray(model(shown(pairs, rng))).argmax(axis=1)
    assert (best == np.arange(25))[is_held_out].mean() >= 0.8
