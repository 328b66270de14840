"""MART: the contract, its formulas in NumPy, who reads whom, a memory that is an argument, sentences."""

import numpy as np
import pytest
from keras import ops

from keras_tfm.generation import CompiledDecoding, Decoder, DecodingOptions
from keras_tfm.heads import LanguageModel, MaskedLM
from keras_tfm.models import MART, MARTConfig
from keras_tfm.models.video.mart import MemoryUpdate, ReadingMask
from tests import contract
from tests.contract import Case, floats, ids, mask, randomise

SMALL = MARTConfig(11, 5, 6, 2, 8, 2, 7, num_memory_cells=2, dropout=0.0)
INPUTS = {
    "features": floats("S", 5),
    "feature_mask": mask("S"),
    "token_ids": ids("T", 11),
    "padding_mask": mask("T"),
    "memory": floats(2, 2, 8),
    "clip_number": contract.Spec((), "int32", 3),
}


def draw(count=2):
    rng = np.random.default_rng(0)
    return {
        "features": rng.normal(size=(count, 4, 5)).astype("float32"),
        "token_ids": rng.integers(0, 11, (count, 3)).astype("int32"),
        "memory": rng.normal(size=(count, 2, 2, 8)).astype("float32"),
        "clip_number": np.ones(count, "int32"),
    }


@pytest.fixture(scope="module")
def model():
    model = MART(SMALL)
    randomise(model, 1)
    return model


def changed(inputs, name, *place):
    """The inputs with another vector in a place, which no norm makes the same."""
    values = inputs[name].copy()
    values[place] += np.arange(values.shape[-1])
    return inputs | {name: values}


def differs(model, inputs, others, name="sequence_output"):
    """Where an output of these inputs differs from the others'."""
    return np.abs(model(inputs)[name] - model(others)[name]) > 1e-5


def test_the_mask_by_hand():
    seen = ReadingMask()(np.array([[True, True, False]]), np.array([[True, False]]))
    clip, tokens = [1, 1, 0, 0, 0], [[1, 1, 0, 1, 0], [1, 1, 0, 1, 0]]
    np.testing.assert_array_equal(np.asarray(seen)[0].astype(int), [clip] * 3 + tokens)


def test_a_memory_by_its_formulas():
    rng = np.random.default_rng(0)
    memory, x = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 5, 8))
    layer = MemoryUpdate(2)
    found = layer(memory, x)  # builds it
    weights = {weight.path.partition("/")[2]: np.asarray(weight) for weight in layer.weights}
    states = np.asarray(layer.attention(memory, x))

    def summed(kind):
        return memory @ weights[f"memory_{kind}/kernel"] + states @ weights[f"state_{kind}/kernel"]

    keep = 1 / (1 + np.exp(-summed("gate")))
    np.testing.assert_allclose(found, (1 - keep) * np.tanh(summed("content")) + keep * memory, atol=1e-5)


def test_tokens_see_the_clip_the_memory_and_earlier_tokens(model):
    inputs = draw()
    rows = differs(model, inputs, changed(inputs, "features", 0, 3)).any(-1)
    np.testing.assert_array_equal(rows, [[True] * 3, [False] * 3])
    later = dict(inputs, token_ids=(inputs["token_ids"] + np.array([[0, 1, 0]])).astype("int32") % 11)
    np.testing.assert_array_equal(differs(model, inputs, later).any(-1), [[False, True, True]] * 2)
    first_block, last_block = (changed(inputs, "memory", 0, layer, 1) for layer in (0, 1))
    for other in (first_block, last_block):
        np.testing.assert_array_equal(differs(model, inputs, other).any(-1), [[True] * 3, [False] * 3])


def test_a_first_clip_makes_its_own_memory(model):
    inputs = draw() | {"clip_number": np.array([0, 2], "int32")}
    other = changed(inputs, "memory", slice(None), 0)
    np.testing.assert_array_equal(differs(model, inputs, other).any((1, 2)), [False, True])
    assert not np.isnan(model(inputs | {"memory": inputs["memory"] * np.nan})["sequence_output"][0]).any()


def test_a_memory_goes_from_clip_to_clip(model):
    memory, states = np.zeros((2, 2, 2, 8), "float32"), []
    for number in range(3):
        clip = changed(draw(), "features", 0, number) | {"clip_number": np.full(2, number, "int32")}
        found = model(clip | {"memory": memory})
        memory = found["memory"]
        states.append(found["sequence_output"])
    alone = model(clip | {"clip_number": np.zeros(2, "int32")})["sequence_output"]
    assert np.abs(states[2] - alone).max() > 1e-3  # what came before matters
    assert all(weight.trainable for weight in model.weights)


def clip_of(inputs):
    """The inputs but for the sentence's."""
    return {name: x for name, x in inputs.items() if name != "token_ids"}


def test_steps_give_the_states_of_the_whole(model):
    inputs = draw() | {"clip_number": np.array([0, 1], "int32")}
    inputs["feature_mask"] = np.array([[True, True, True, False], [True] * 4])
    cache, states = model.start(2, 4, clip_of(inputs)), []
    for piece in np.split(inputs["token_ids"], [1], axis=1):
        y, cache = model.step(piece, cache)
        states.append(y)
    np.testing.assert_allclose(np.concatenate(states, 1), model(inputs)["sequence_output"], atol=1e-5)


@pytest.fixture(scope="module")
def writer():
    writer = LanguageModel(MART(SMALL))
    randomise(writer, 2, deviation=0.8)
    return writer


def clip(number, memory):
    """The inputs of a clip without its sentence."""
    inputs = changed(draw(), "features", slice(None), number) | {"memory": memory}
    return clip_of(inputs) | {"clip_number": np.full(2, number, "int32")}


def test_sentences_clip_by_clip(writer):
    """Each token is the likeliest one by a call of the whole model, with the memory of the clip before."""
    decode, prompt = Decoder(writer, max_new_tokens=3), np.ones((2, 1), "int32")
    memory = np.zeros((2, 2, 2, 8), "float32")
    for number in range(2):
        inputs = clip(number, memory)
        written = np.asarray(decode(prompt, context=inputs))
        whole = inputs | {"token_ids": written}
        np.testing.assert_array_equal(written[:, 1:], np.asarray(writer(whole))[:, :-1].argmax(-1))
        memory = writer.backbone(whole)["memory"]


@pytest.mark.slow
def test_a_beam_for_each_token_finds_the_likeliest_sentence(writer):
    """Of two tokens, among all 121, by calls of the whole model."""
    inputs, prompt = clip(1, draw()["memory"]), np.ones((2, 1), "int32")
    options = DecodingOptions(max_new_tokens=2, beam_size=11)
    found = np.asarray(CompiledDecoding(writer)(options, prompt, context=inputs))
    pairs = np.stack(np.divmod(np.arange(121), 11), axis=-1)
    for row in range(2):
        many = {name: np.repeat(x[row : row + 1], 121, axis=0) for name, x in inputs.items()}
        logits = writer(many | {"token_ids": np.insert(pairs, 0, 1, axis=1)})[:, :2]
        p = np.take_along_axis(np.asarray(ops.log_softmax(logits)), pairs[..., None], axis=-1)
        np.testing.assert_array_equal(found[row, 1:], pairs[p.sum((1, 2)).argmax()])


def test_a_context_without_a_memory_is_refused(model):
    with pytest.raises(ValueError, match="`context` must have clip_number, memory; it has features"):
        model.start(2, 4, {"features": draw()["features"]})


def test_a_head_predicts_the_words():
    logits = MaskedLM(MART(SMALL))(draw())
    assert logits.shape == (2, 3, 11)


def test_the_published_size(no_allocation):
    """Counted by hand."""

    def dense(rows, columns):
        return rows * columns + columns

    dim = 768
    inputs = sum(2 * width + dense(width, dim) + 3 * dim for width in (3072, 300))
    attention = 4 * dense(dim, dim)
    block = 2 * (attention + 2 * dim) + 2 * dense(dim, dim) + 2 * dim  # two attentions, one feed-forward
    memory = attention + 2 * (2 * dim * dim + dim) + dim + dense(dim, dim) + 2 * dim
    model = MART.from_size("base")
    count = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
    assert count == 30_000 * 300 + inputs + 2 * (block + memory)


CASE = Case("MART", lambda: MART(SMALL), INPUTS, attends=True)
test_contract = contract.check_family(CASE)
