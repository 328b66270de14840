"""The decoding loop: what it feeds, when it stops, and that a cache changes nothing."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.generation import (
    BeamSearch,
    CompiledDecoding,
    Decoder,
    DecodingOptions,
    EndTokens,
    ForcedTokens,
    MinP,
    NoRepeatNGram,
    Sample,
    Suppress,
    loop,
)
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import Transformer, TransformerConfig
from tests import contract
from tests.generation.markov import markov

START, END, PAD = 1, 2, 0


# The loop itself -------------------------------------------------------------------------------------


class Scripted:
    """Says the rows of `script` whatever it is told, and remembers what that was."""

    def __init__(self, script, size=10):
        self.script = tf.constant(script)
        self.size = size
        self.told = []

    def start(self, batch_size, max_length, context):
        return tf.constant(0)

    def step(self, token_ids, cache, padding_mask=None):
        self.told.append(token_ids)
        return tf.one_hot(self.script[:, cache], self.size)[:, None], cache + 1


def decoded(script, max_length):
    model = Scripted(script)
    rows = Decoder(model, max_length, stop=EndTokens(END), pad_id=PAD)(tf.fill([len(script), 1], START))
    return rows.numpy(), model


def test_each_answer_is_the_next_question():
    rows, model = decoded([[5, 6, 7], [8, 9, 5]], 3)
    np.testing.assert_array_equal(rows, [[START, 5, 6, 7], [START, 8, 9, 5]])
    np.testing.assert_array_equal(np.concatenate(model.told, axis=1), rows[:, :-1])


def test_a_row_that_ended_is_padded_while_others_go_on():
    rows, _ = decoded([[5, END, 7, 7], [8, 9, 5, END]], 4)
    np.testing.assert_array_equal(rows, [[START, 5, END, PAD, PAD], [START, 8, 9, 5, END]])


def test_decoding_stops_when_every_row_has_ended():
    rows, model = decoded([[5, END, 7, 7, 7, 7], [END, 9, 5, 5, 5, 5]], 6)
    assert len(model.told) == 2
    np.testing.assert_array_equal(rows[:, 3:], np.full((2, 4), PAD))


@pytest.mark.parametrize("max_length", [1, 2])
def test_a_row_without_end_is_cut(max_length):
    rows, model = decoded([[5, 6, 7]], max_length)
    np.testing.assert_array_equal(rows, [[START, 5, 6][: 1 + max_length]])
    assert len(model.told) == max_length


# With a Transformer ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    """Its weights are a draw that says much: most random models repeat one word."""
    config = TransformerConfig(
        11, 13, num_layers=1, dim=8, num_heads=2, intermediate_dim=9, normalize_first=True
    )
    model = LanguageModel(Transformer(config), tied=False)
    contract.randomise(model, seed=8)
    return model


@pytest.fixture(scope="module")
def context():
    rng = np.random.default_rng(0)
    mask = np.arange(6) < np.array([6, 2, 4, 5])[:, None]
    return {"token_ids": rng.integers(3, 11, (4, 6), "int32") * mask, "padding_mask": mask}


MAX_LENGTH = 9


def greedy(model, context, end_id=END):
    decoder = Decoder(model, MAX_LENGTH, stop=EndTokens(end_id), pad_id=PAD)
    return decoder(starts(context), context=context)


def starts(context):
    """The start token of each row: (B, 1)."""
    return tf.fill([tf.shape(context["token_ids"])[0], 1], START)


def recomputed(model, context, end_id=END):
    """Greedy decoding without a cache: the whole prefix anew for every token."""
    rows = np.full((len(context["token_ids"]), 1), START, "int32")
    for _ in range(MAX_LENGTH):
        logits = model(context | {"decoder_token_ids": rows})
        has_ended = (rows == end_id).any(1)
        rows = np.c_[rows, np.where(has_ended, PAD, np.argmax(logits[:, -1], -1))]
    return rows


@pytest.fixture(scope="module")
def end_id(model, context):
    """A token that ends some rows early, not all."""
    rows = recomputed(model, context, end_id=-1)[:, 1:]
    return next(t for t in range(3, 13) if 0 < (rows[:, : MAX_LENGTH - 2] == t).any(1).sum() < len(rows))


@pytest.fixture(scope="module")
def traced(model, context, end_id):
    """`greedy` as one graph for all sizes, quicker than the many small operations of eager decoding."""
    signature = {name: tf.TensorSpec((None, None), x.dtype) for name, x in context.items()}
    return tf.function(lambda x: greedy(model, x, end_id), autograph=False, input_signature=[signature])


def of_any_lengths(function, context):
    """`function` of prompts, their mask and `context` as one graph for all sizes."""
    signature = [{name: tf.TensorSpec((None, None), x.dtype) for name, x in context.items()}]
    signature = [tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None, None), tf.bool), *signature]
    return tf.function(function, autograph=False, input_signature=signature)


def test_cached_equals_recomputed(model, context, end_id):
    rows = greedy(model, context, end_id).numpy()
    np.testing.assert_array_equal(rows, recomputed(model, context, end_id))
    assert len(np.unique(rows)) > 5


def test_a_batch_equals_its_rows_one_by_one(traced, context):
    together = traced(context)
    for row in range(4):
        alone = traced({name: x[row : row + 1] for name, x in context.items()})
        np.testing.assert_array_equal(alone[0], together[row])


def test_padding_of_the_source_changes_nothing(traced, context):
    wider = {name: np.pad(x, ((0, 0), (0, 3))) for name, x in context.items()}
    wider["token_ids"][:, 6:] = 7
    np.testing.assert_array_equal(traced(wider), traced(context))


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_traced_equals_eager(model, context, end_id, jit_compile):
    traced = tf.function(lambda x: greedy(model, x, end_id), autograph=False, jit_compile=jit_compile)
    tensors = {name: tf.constant(x) for name, x in context.items()}
    np.testing.assert_array_equal(traced(tensors), greedy(model, context, end_id))


def test_one_trace_serves_every_batch_size_and_length(traced, model, context, end_id):
    for rows, source_length in ((4, 6), (1, 2), (2, 6), (0, 3)):
        some = {name: x[:rows, :source_length] for name, x in context.items()}
        np.testing.assert_array_equal(traced(some), greedy(model, some, end_id))


def test_prompts_are_read_in_one_step_and_may_be_of_any_length(traced, model, context, end_id):
    """Prompts that begin as greedy decoding does go on as it does, also where no graph knows their length."""
    expected = traced(context).numpy()
    signature = [{name: tf.TensorSpec((None, None), x.dtype) for name, x in context.items()}]
    signature = [tf.TensorSpec((None, None), tf.int32), *signature]

    @tf.function(autograph=False, input_signature=signature)
    def decode(prompts, context):
        return Decoder(model, 3, stop=EndTokens(end_id), pad_id=PAD)(prompts, context=context)

    running = ~(expected[:, :4] == end_id).any(1)
    for length in (1, 2, 4):
        rows = decode(expected[:, :length], context).numpy()
        np.testing.assert_array_equal(rows[running], expected[running, : length + 3])
        rows = Decoder(model, 3, stop=EndTokens(end_id))(expected[:, :length], context=context).numpy()
        np.testing.assert_array_equal(rows[running], expected[running, : length + 3])


@pytest.mark.parametrize("make", [
    lambda model: Decoder(model, 5, stop=EndTokens(END)),
    lambda model: BeamSearch(model, 5, 3, stop=EndTokens(END)),
], ids=["greedy", "beam"])  # fmt: skip
def test_prompts_padded_on_the_left_equal_those_alone(model, context, make):
    prompts = np.array([[START, 5, 6, 7], [9, 9, START, 4], [3, 3, 3, START], [8, START, 4, 4]], "int32")
    mask = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1, 1]], bool)
    decode = of_any_lengths(make(model), context)
    together = decode(prompts, mask, context).numpy()
    for row in range(4):
        length = mask[row].sum()
        source = {name: x[row : row + 1] for name, x in context.items()}
        alone = decode(prompts[row : row + 1, -length:], np.ones((1, length), bool), source)
        np.testing.assert_array_equal(alone[0], together[row, 4 - length :])


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_beams_share_their_context_and_carry_their_caches(traced, model, context, end_id, jit_compile):
    """The score of each result is what the whole model, run anew over it, says."""
    beams = BeamSearch(model, MAX_LENGTH, 4, 0.6, stop=EndTokens(end_id), pad_id=PAD)
    search = tf.function(
        lambda x: beams.search(starts(x), context=x), autograph=False, jit_compile=jit_compile
    )
    rows, scores = search({name: tf.constant(x) for name, x in context.items()})
    for beam in range(4):
        tokens = rows[:, beam].numpy()
        log_p = tf.nn.log_softmax(model(context | {"decoder_token_ids": tokens[:, :-1]})).numpy()
        chosen = np.take_along_axis(log_p, tokens[:, 1:, None], -1)[..., 0]
        counts = np.cumsum(tokens[:, :-1] == end_id, axis=1) == 0
        expected = (chosen * counts).sum(1) / counts.sum(1) ** 0.6
        np.testing.assert_allclose(scores[:, beam], expected, rtol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()
    best_of_one = BeamSearch(model, MAX_LENGTH, 1, stop=EndTokens(end_id), pad_id=PAD)
    np.testing.assert_array_equal(best_of_one(starts(context), context=context), traced(context))


@pytest.mark.parametrize("sampler", [None, Sample(3)], ids=["greedy", "sampled"])
def test_streamed_tokens_are_those_decoded(model, context, end_id, sampler):
    options = {"sampler": sampler} if sampler else {}
    decoder = Decoder(model, MAX_LENGTH, stop=EndTokens(end_id), pad_id=PAD, **options)
    expected = decoder(starts(context), context=context).numpy()[:, 1:]
    tokens = np.stack(list(decoder.stream(starts(context), context=context)), axis=1)
    np.testing.assert_array_equal(tokens, expected[:, : tokens.shape[1]])
    assert (expected[:, tokens.shape[1] :] == PAD).all()


def test_no_rows_stream_nothing_and_beams_do_not_stream():
    compiled = CompiledDecoding(markov())
    assert not list(compiled.stream(DecodingOptions(3), np.zeros((0, 2), "int32")))
    with pytest.raises(ValueError, match="`beam_size` must be 1 to stream tokens; it is 4"):
        list(compiled.stream(DecodingOptions(3, beam_size=4), np.array([[1]])))


def test_a_stream_ends_with_its_own_rows():
    """The copies that fill a batch are drawn by themselves, and end elsewhere."""
    compiled = CompiledDecoding(markov(), stop=EndTokens(1), pad_id=0)
    for seed in range(8):
        options = DecodingOptions(30, temperature=1.0, seed=seed)
        tokens = np.stack(list(compiled.stream(options, np.array([[2]]))), 1)
        assert tokens.shape[1] == 30 or tokens[0, -1] == 1


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"beam_size": 2},
        pytest.param({"top_k": 3, "seed": 1}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_sizes_rounded_up_change_nothing(model, context, options):
    """Rows to powers of two, sources too, prompts to multiples of 32 or what there is room for."""
    prompts = np.array([[START, 5, 6], [9, START, 4], [3, 3, START]], "int32")
    mask = np.array([[1, 1, 1], [0, 1, 1], [0, 0, 1]], bool)
    some = {name: x[:3] for name, x in context.items()}
    decoding = DecodingOptions(4, **options)
    expected = decoding.decoder(model, EndTokens(END))(prompts, mask, some)
    for max_length in (None, 7, 9):
        compiled = CompiledDecoding(model, EndTokens(END), max_length=max_length, max_context=max_length)
        np.testing.assert_array_equal(compiled(decoding, prompts, mask, some), expected)
    assert compiled(decoding, prompts[:0]).shape == (0, 7)
    with pytest.raises(ValueError, match=r"must be at most 6; they are 3 \+ 4"):
        CompiledDecoding(model, max_length=6)(decoding, prompts, mask, some)
    with pytest.raises(ValueError, match="A prompt must hold at least one token"):
        CompiledDecoding(model)(decoding, prompts[:, :0], None, some)


def test_one_function_serves_all_seeds_and_temperatures():
    compiled = CompiledDecoding(markov())
    for seed, temperature in ((1, 0.5), (2, 1), (3, 2.0)):
        compiled(DecodingOptions(3, temperature=temperature, seed=seed), [[1]])
    ((whole, *_),) = compiled.functions.values()
    assert whole.experimental_get_tracing_count() == 1
    compiled(DecodingOptions(3), [[1]])
    assert len(compiled.functions) == 2
    compiled(DecodingOptions(3), [[1] * 40])
    compiled(DecodingOptions(3), [[1] * 50])  # both are 64 tokens
    assert len(compiled.functions) == 3
    assert all(whole.experimental_get_tracing_count() == 1 for whole, *_ in compiled.functions.values())


class Plain:
    """A processor that says nothing of its equals."""

    def __call__(self, logits, written):
        return logits


class Odd(MinP):
    """One that derives from another, and has an attribute more."""

    def __init__(self, p, by):
        super().__init__(p)
        self.by = by

    def __call__(self, logits, written):
        return logits + self.by


def test_equal_processors_share_a_function_and_no_loop_fills_the_memory(monkeypatch):
    monkeypatch.setattr(loop, "MOST_FUNCTIONS", 9)
    compiled = CompiledDecoding(markov())
    makers = (
        lambda: MinP(0.1),
        lambda: MinP(0.2),
        lambda: Odd(0.1, 1.0),
        lambda: Odd(0.1, np.arange(5.0)),  # an array has no hash
        lambda: NoRepeatNGram(2),
        lambda: ForcedTokens([1, [2, 3]]),
        lambda: Suppress(np.array([1, 2])),
    )
    for make in makers:
        for _ in range(2):
            compiled(DecodingOptions(3, processors=[make()]), [[1]])
    assert len(compiled.functions) == len(makers) + 1  # the array counts by identity
    for _ in range(5):
        compiled(DecodingOptions(3, processors=[MinP(0.1)]), [[1]])
        (kept, *_) = compiled.functions[next(reversed(compiled.functions))]
        for _ in range(4):
            compiled(DecodingOptions(3, processors=[Plain()]), [[1]])
    assert len(compiled.functions) == 9
    compiled(DecodingOptions(3, processors=[MinP(0.1)]), [[1]])
    assert compiled.functions[next(reversed(compiled.functions))][0] is kept  # what is used often stays


def test_without_a_seed_keras_draws_one():
    """Another for each call, the same ones after `set_random_seed`; NumPy's generator is left alone."""
    compiled = CompiledDecoding(markov(9))
    prompts, hot = [[1]] * 4, DecodingOptions(9, temperature=2.0)
    before = np.random.get_state()[1].tolist(), np.random.get_state()[2]
    draws = [compiled(hot, prompts).numpy().tolist() for _ in range(2)]
    runs = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        np.random.set_state(("MT19937", *before))
        runs.append([compiled(options, prompts).numpy().tolist() for options in (hot, hot)])
        assert (np.random.get_state()[1].tolist(), np.random.get_state()[2]) == before
        np.random.random()
    assert runs[0] == runs[1] and runs[0][0] != runs[0][1]
    assert draws[0] != draws[1]
    decoded = hot.decoder(markov(9))(np.array(prompts)).numpy().tolist()
    assert decoded not in runs[0]
    assert hot == DecodingOptions(9, temperature=2.0)


@pytest.mark.slow
def test_a_memorised_translation_is_returned_and_ends():
    """ "The green witch arrived" -> "llego la bruja verde", among others, learnt by heart."""
    keras.utils.set_random_seed(1)
    pairs = [
        ("the green witch arrived", "llego la bruja verde"),
        ("the witch sang", "canto la bruja"),
        ("the red witch arrived", "llego la bruja roja"),
    ]
    words = ["<pad>", "<start>", "<end>", *sorted(set(" ".join(sum(pairs, ())).split()))]

    def rows(texts, length):
        ids = [[words.index(word) for word in text.split()] for text in texts]
        return np.array([row + [PAD] * (length - len(row)) for row in ids], "int32")

    source = rows([pair[0] for pair in pairs], 4)
    target = rows([f"<start> {pair[1]} <end>" for pair in pairs], 6)
    batch = {"token_ids": source, "padding_mask": source != PAD, "decoder_token_ids": target[:, :-1]}
    config = TransformerConfig(
        len(words), num_layers=1, dim=16, num_heads=2, intermediate_dim=32, dropout=0.0
    )
    model = LanguageModel(Transformer(config))
    model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy())
    losses = [model.train_on_batch(batch, target[:, 1:], target[:, 1:] != PAD) for _ in range(60)]
    assert losses[-1] < 0.1 < losses[0]
    context = {name: batch[name] for name in ("token_ids", "padding_mask")}
    np.testing.assert_array_equal(greedy(model, context)[:, :6], target)
    np.testing.assert_array_equal(greedy(model, context)[:, 6:], np.full((3, MAX_LENGTH - 5), PAD))
