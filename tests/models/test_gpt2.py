"""GPT-2: the contract, the papers' sizes, padding, packed documents, decoding."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.export.saved_model import write_saved_model
from keras_tfm.generation import BeamSearch, CompiledDecoding, Decoder, DecodingOptions, SpeculativeDecoder
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import GPT2, GPT2Config
from keras_tfm.models.base import Trace
from tests import contract
from tests.contract import Case, ids, mask

TINY = GPT2Config(11, max_length=12, num_layers=1, dim=6, num_heads=2)
INPUTS = {"token_ids": ids("T", 11), "padding_mask": mask("T"), "segment_ids": ids("T", 2)}


class Documents(contract.Spec):
    """Document numbers as packing writes them: 0, 0, 1, ..."""

    def draw(self, rng, batch_size, lengths):
        return np.sort(super().draw(rng, batch_size, lengths), axis=1)


def cache(model, batch, max_length):
    return model.start(len(batch["token_ids"]), max_length)


PROMISES = {"attends": True, "causal": "T"}

test_contract = contract.check_family(
    Case("decoder", lambda: GPT2(TINY), {**INPUTS, "segment_ids": ids("T", 1)}, **PROMISES, cache=cache,
         left_padding="T", kind="decoder"),
    Case("packed", lambda: GPT2(dataclasses.replace(TINY, normalize_first=False)),
         {**INPUTS, "segment_ids": Documents(("T",), "int32", 2)}, **PROMISES),
)  # fmt: skip


# Sizes -----------------------------------------------------------------------------------------------


def num_weights(config):
    """Counted by hand: embeddings, blocks of 12 D² + 13 D, and the last norm where it stands first."""
    blocks = config.num_layers * (12 * config.dim**2 + 13 * config.dim)
    return (config.vocabulary_size + config.max_length + 2 * config.normalize_first) * config.dim + blocks


def test_number_of_weights(no_allocation):
    model, small = GPT2.from_size("gpt2"), GPT2(TINY)
    counts = [contract.num_parameters(made.trainable_weights) for made in (model, small)]
    assert counts == [num_weights(model.config), num_weights(TINY)] and counts[0] == 124_439_808


@pytest.mark.parametrize(
    ("size", "number", "tolerance"),
    [
        ("gpt1", 116_534_784, 0),
        ("gpt2", 124_439_808, 0),
        ("gpt2-medium", 354_823_168, 0),
        ("gpt2-large", 774_030_080, 0),
        ("gpt2-xl", 1_557_611_200, 0),
        ("gpt3-small", 125e6, 0.01),
        ("gpt3-medium", 350e6, 0.03),
        ("gpt3-large", 760e6, 0.01),
        ("gpt3-xl", 1.3e9, 0.02),
        ("gpt3-2.7b", 2.7e9, 0.03),
        ("gpt3-6.7b", 6.7e9, 0.01),
        ("gpt3-13b", 13e9, 0.02),
        ("gpt3-175b", 175e9, 0.01),
    ],
)
def test_sizes_are_the_papers(size, number, tolerance):
    assert num_weights(GPT2.sizes[size]) == pytest.approx(number, rel=tolerance)


def test_initial_weights():
    """Section 2.3: what adds to the residual starts smaller by sqrt(2 L); no two kernels are alike."""
    model = GPT2.from_size("tiny")
    kernels = [w.numpy() for block in model.blocks["decoder"] for w in block.trainable_weights
               if w.name == "kernel"]  # fmt: skip
    deviations = [[kernel.std() for kernel in kernels[i::4]] for i in range(4)]
    for deviation, expected in zip(deviations, (0.02, 0.02 / 8**0.5) * 2, strict=True):
        np.testing.assert_allclose(deviation, expected, rtol=0.05)
    assert len({kernel.flat[0] for kernel in kernels}) == 16
    loss = TokenCrossEntropy()([[1, 2, 3]], LanguageModel(model)({"token_ids": np.array([[5, 6, 7]])}))
    assert float(loss) == pytest.approx(np.log(8_000), rel=0.05)  # a uniform model's


# What is seen ----------------------------------------------------------------------------------------


def randomised(seed=3, **changes):
    model = LanguageModel(GPT2(dataclasses.replace(TINY, num_layers=2, **changes)))
    contract.randomise(model, seed)
    return model


def test_packed_documents_equal_those_alone():
    model = randomised()
    documents = [[1, 2, 3], [4], [5, 6, 7, 8]]
    segment_ids = np.repeat([0, 1, 2], [3, 1, 4])[None]
    packed = model({"token_ids": np.concatenate(documents)[None], "segment_ids": segment_ids})
    alone = np.concatenate([model({"token_ids": np.array([document])})[0] for document in documents])
    np.testing.assert_allclose(packed[0], alone, atol=1e-5)


def test_gradients_see_nothing_later():
    """The gradient of a logit with respect to a later embedding is exactly 0."""
    model = randomised()
    x = tf.Variable(tf.random.normal((1, 5, 6)))
    decoder = model.backbone.decoder
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(model.head(decoder.run(Trace(), "decoder", x, None))[0], -1)
    gradient = np.abs(tape.jacobian(y, x).numpy()[:, 0]).max(-1)
    assert (np.triu(gradient, 1) == 0).all() and (np.diag(gradient) > 0).all()


def test_too_long_is_refused():
    model = randomised()
    with pytest.raises(ValueError, match="has positions for 12 tokens; 13 are asked for"):
        Decoder(model, 10)([[1, 2, 3]])
    assert Decoder(model, 9)([[1, 2, 3]]).shape == (1, 12)


# Decoding --------------------------------------------------------------------------------------------

PROMPTS = np.array([[1, 2, 3, 4], [9, 9, 5, 6], [9, 7, 8, 9], [9, 9, 9, 10]])
MASK = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]], bool)


def recomputed(model, prompt, count):
    rows = np.array([prompt])
    for _ in range(count):
        rows = np.append(rows, np.argmax(model({"token_ids": rows})[:, -1:], -1), axis=1)
    return rows[0]


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_cached_left_padded_batch_equals_recomputed_prompts_alone(jit_compile):
    model = randomised()
    decode = tf.function(Decoder(model, 8), autograph=False, jit_compile=jit_compile)
    rows = decode(PROMPTS, MASK).numpy()
    for row, prompt, real in zip(rows, PROMPTS, MASK, strict=True):
        np.testing.assert_array_equal(row[4 - real.sum() :], recomputed(model, prompt[real], 8))
    assert len(np.unique(rows)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_beams_of_a_padded_batch_equal_those_alone(beam_size):
    model = randomised()
    search = BeamSearch(model, 6, beam_size, 0.6)
    together, scores = search.search(PROMPTS, MASK)
    for row in range(4):
        alone, score = search.search(PROMPTS[row : row + 1, 4 - MASK[row].sum() :])
        np.testing.assert_array_equal(alone[0], together[row, :, 4 - MASK[row].sum() :])
        np.testing.assert_allclose(score[0], scores[row], rtol=1e-5)


@pytest.mark.slow
def test_speculative_equals_greedy():
    model, draft = randomised(max_length=40), randomised(max_length=40)
    for mine in draft.trainable_weights:
        mine.assign_add(0.05 * np.random.default_rng(0).normal(size=mine.shape))
    rows, num_rounds = SpeculativeDecoder(model, draft, 20, 3).race(PROMPTS, MASK)
    np.testing.assert_array_equal(rows, Decoder(model, 20)(PROMPTS, MASK))
    assert num_rounds < 20


@pytest.mark.slow
def test_a_saved_model_samples_alike(tmp_path):
    """A SavedModel with temperature, top_p and seed as inputs, compiled, answers as the model does."""
    model = randomised()

    @tf.function(autograph=False, jit_compile=True)
    def generate(token_ids, temperature, top_p, seed):
        numbers = {"temperature": temperature, "top_p": top_p, "seed": seed}
        return DecodingOptions(5, **numbers).decoder(model, None)(token_ids)

    signature = [
        tf.TensorSpec([None, None], tf.int32, "token_ids"),
        tf.TensorSpec([], tf.float32, "temperature"),
        tf.TensorSpec([], tf.float32, "top_p"),
        tf.TensorSpec([], tf.int32, "seed"),
    ]
    write_saved_model(model, {"generate": (generate, signature)}, [], tmp_path)
    served = tf.saved_model.load(tmp_path)
    compiled = CompiledDecoding(model, max_length=12)
    for seed in (1, 2):
        expected = compiled(DecodingOptions(5, temperature=0.8, top_p=0.9, seed=seed), PROMPTS)
        numbers = tf.constant(0.8), tf.constant(0.9), tf.constant(seed)
        answer = served.generate(tf.constant(PROMPTS, tf.int32), *numbers)
        np.testing.assert_array_equal(answer, expected)


@pytest.mark.slow
def test_a_sentence_learnt_by_heart_is_completed():
    """ "So long and thanks for" -> "all the fish"."""
    keras.utils.set_random_seed(0)
    words = ["<end>", "so", "long", "and", "thanks", "for", "all", "the", "fish"]
    row = np.array([[1, 2, 3, 4, 5, 6, 7, 8, 0]])
    model = LanguageModel(GPT2(GPT2Config(len(words), 16, num_layers=1, dim=16, num_heads=2, dropout=0.0)))
    model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy())
    for _ in range(40):
        model.train_on_batch({"token_ids": row[:, :-1]}, row[:, 1:])
    completed = Decoder(model, 4)(row[:, :5]).numpy()[0]
    assert [words[i] for i in completed[5:]] == ["all", "the", "fish", "<end>"]
