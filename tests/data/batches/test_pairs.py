"""Batches of pairs: every pair once, little padding, few shapes, and the inventory's worked examples."""

import gzip

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tfm.data import BERTTokenizer, PairBatches, encode_sources, read_pairs, train_tokenizer
from keras_tfm.data.batches.lengths import choose_steps, cut

WORDS = "the quick brown fox jumps over lazy dog what time is it quarter to five".split()  # noqa: SIM905
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, START, END = 0, 2, 3


@pytest.fixture(scope="module")
def words():
    """One id a word, so that lengths and ids can be counted by hand."""
    return BERTTokenizer([*SPECIAL, *WORDS])


def random_pairs(num_pairs: int, longest: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Pairs without a repeat: the first words of each are its number, spelled in words."""
    random = np.random.default_rng(seed)

    def text(number: int) -> str:
        digits = [WORDS[int(digit)] for digit in f"{number:04}"]
        return " ".join(digits + random.choice(WORDS, random.integers(0, longest - 3)).tolist())

    return [text(i) for i in range(num_pairs)], [text(i) for i in range(num_pairs)]


def batches_of(dataset: tf.data.Dataset) -> list:
    return list(dataset.as_numpy_iterator())


def pairs_of(batches: list, tokenizer) -> list[tuple[str, str]]:
    sides = zip(*((inputs["token_ids"], labels) for inputs, labels, _ in batches), strict=True)
    rows = [tf.ragged.constant([row for batch in side for row in batch.tolist()]) for side in sides]
    texts = [[text.decode() for text in tokenizer.detokenize(side).numpy()] for side in rows]
    return [pair for pair in zip(*texts, strict=True) if pair != ("", "")]


def check_batch(inputs: dict, labels: np.ndarray, weights: np.ndarray, start: int = START, end: int = END):
    token_ids, decoder_ids = inputs["token_ids"], inputs["decoder_token_ids"]
    source_mask, mask = inputs["padding_mask"], inputs["decoder_padding_mask"]
    assert token_ids.shape == source_mask.shape
    assert decoder_ids.shape == mask.shape == labels.shape == weights.shape
    assert token_ids.dtype == decoder_ids.dtype == labels.dtype == np.int32
    assert source_mask.dtype == mask.dtype == bool and weights.dtype == np.float32
    assert np.array_equal(weights, mask) and np.array_equal(source_mask, token_ids != PAD)
    assert np.array_equal(labels != PAD, mask) and np.array_equal(decoder_ids != PAD, mask)
    num_rows = int(source_mask[:, 0].sum())  # rows of padding alone, the same on both sides, stand last
    assert not source_mask[num_rows:].any() and not mask[num_rows:].any()
    token_ids, decoder_ids, labels = token_ids[:num_rows], decoder_ids[:num_rows], labels[:num_rows]
    source_mask, mask = source_mask[:num_rows], mask[:num_rows]
    for side in (source_mask, mask):  # padding stands on the right
        assert side[:, 0].all() and not np.any(side[:, 1:] & ~side[:, :-1])
    lengths, rows = mask.sum(axis=1), np.arange(len(labels))
    assert (decoder_ids[:, 0] == start).all() and (labels[rows, lengths - 1] == end).all()
    assert np.array_equal(decoder_ids[:, 1:], np.where(mask[:, 1:], labels[:, :-1], PAD))
    assert (token_ids[rows, source_mask.sum(axis=1) - 1] == end).all()
    assert (np.sum(token_ids == end, axis=1) == 1).all() and (np.sum(labels == end, axis=1) == 1).all()


def test_shifted_targets(words):
    """The input is <SOS> The quick ... dog, the target The ... dog <EOS>."""
    sentence = "the quick brown fox jumps over the lazy dog"
    ((inputs, labels, weights),) = batches_of(PairBatches([sentence], [sentence], words, words).dataset())
    pieces = words.tokenize([sentence]).numpy()[0].tolist()
    assert inputs["decoder_token_ids"].tolist() == [[START, *pieces]]
    assert labels.tolist() == inputs["token_ids"].tolist() == [[*pieces, END]]
    assert np.array_equal(inputs["decoder_token_ids"][:, 1:], labels[:, :-1])  # what teacher forcing is
    assert weights.tolist() == [[1.0] * 10] and inputs["padding_mask"].all()


def test_unequal_lengths_and_padding(words):
    """What time is it -> it is quarter to five, beside a shorter pair."""
    batches = PairBatches(
        ["what time is it", "fox"], ["it is quarter to five", "dog"], words, words, min_batches=1
    )
    ((inputs, labels, weights),) = batches_of(batches.dataset())
    order = np.argsort(inputs["padding_mask"].sum(axis=1))  # the shorter one first
    assert inputs["padding_mask"][order].sum(axis=1).tolist() == [2, 5]
    fox, dog = words.tokenize(["fox", "dog"]).flat_values.numpy()
    assert inputs["token_ids"][order[0]].tolist() == [fox, END, 0, 0, 0]
    assert inputs["decoder_token_ids"][order[0]].tolist() == [START, dog, 0, 0, 0, 0]
    assert labels[order[0]].tolist() == [dog, END, 0, 0, 0, 0]
    assert weights[order].tolist() == [[1, 1, 0, 0, 0, 0], [1] * 6]
    assert (batches.num_tokens, batches.padding_share) == (15, 1 - 15 / 22)


@settings(max_examples=settings.default.max_examples // 3)  # a dataset is made for each
@given(
    num_pairs=st.integers(1, 300),
    longest=st.integers(4, 40),
    batch_tokens=st.sampled_from([100, 300, 1000, 4096]),
    num_shapes=st.integers(1, 20),
    min_batches=st.integers(1, 20),
    seed=st.none() | st.integers(0, 2**31),
)
def test_an_epoch_is_every_pair_once_within_the_budget(
    words, num_pairs, longest, batch_tokens, num_shapes, min_batches, seed
):
    sources, targets = random_pairs(num_pairs, longest, seed=longest)
    batches = PairBatches(
        sources, targets, words, words,
        batch_tokens=batch_tokens, num_shapes=num_shapes, min_batches=min_batches, seed=seed,
    )  # fmt: skip
    epoch = batches_of(batches.dataset(3))
    for batch in epoch:
        check_batch(*batch)
    assert sorted(pairs_of(epoch, words)) == sorted(zip(sources, targets, strict=True))
    shapes = [(*inputs["token_ids"].shape, labels.shape[1]) for inputs, labels, _ in epoch]
    assert batches.num_batches == len(epoch)
    assert sorted(set(shapes)) == batches.shapes and len(batches.shapes) <= num_shapes
    assert all(rows * (source + target) <= batch_tokens for rows, source, target in shapes)
    assert batches.num_examples == num_pairs and batches.num_dropped == 0
    num_real = sum(int(inputs["padding_mask"].sum() + weights.sum()) for inputs, _, weights in epoch)
    num_computed = sum(rows * (source + target) for rows, source, target in shapes)
    assert num_real == batches.num_tokens
    assert batches.padding_share == pytest.approx(1 - num_real / num_computed)


def test_dataset(words):
    batches = PairBatches(*random_pairs(200, 20), words, words, batch_tokens=500, seed=1)
    dataset = batches.dataset(5)
    assert dataset.cardinality() == batches.num_batches
    inputs, labels, weights = dataset.element_spec
    assert {spec.shape.rank for spec in (*inputs.values(), labels, weights)} == {2}
    for batch in batches_of(dataset):
        check_batch(*batch)


def same(first: list, second: list) -> bool:
    return all(map(np.array_equal, tf.nest.flatten(first), tf.nest.flatten(second)))


def in_epochs(batches: PairBatches, count: int) -> list:
    """The first `count` epochs of the endless dataset."""
    iterator = batches.epochs().as_numpy_iterator()
    return [[next(iterator) for _ in range(batches.num_batches)] for _ in range(count)]


def test_epochs_differ_and_are_the_seed_s(words):
    batches = PairBatches(*random_pairs(300, 12), words, words, batch_tokens=400, seed=7)
    first, second, third = in_epochs(batches, 3)
    assert not same(first, second) and not same(second, third)
    assert same(batches_of(batches.dataset(2)), third)
    again = PairBatches(*random_pairs(300, 12), words, words, batch_tokens=400, seed=7)
    assert same(batches_of(again.dataset(1)), second)
    other = PairBatches(*random_pairs(300, 12), words, words, batch_tokens=400, seed=8)
    assert not same(batches_of(other.dataset()), first)
    assert [batch[1].shape for batch in first] != [batch[1].shape for batch in second]  # in another order
    neighbours = [{frozenset(row) for row in batch[1].tolist()} for batch in first]
    assert any({frozenset(row) for row in batch[1].tolist()} not in neighbours for batch in second)


def test_an_iterator_goes_on_where_it_was_saved(words, tmp_path):
    batches = PairBatches(*random_pairs(300, 12), words, words, batch_tokens=400, seed=7)
    iterator = iter(batches.epochs())
    for _ in range(batches.num_batches + 3):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "iterator"))
    rest = [next(iterator) for _ in range(batches.num_batches)]
    again = PairBatches(*random_pairs(300, 12), words, words, batch_tokens=400, seed=7)
    iterator = iter(again.epochs())
    tf.train.Checkpoint(iterator=iterator).read(saved)
    assert same([next(iterator) for _ in rest], rest)


def test_without_a_seed_epochs_are_alike(words):
    batches = PairBatches(*random_pairs(100, 12), words, words, batch_tokens=400)
    first, second = in_epochs(batches, 2)
    assert same(first, second) and same(first, batches_of(batches.dataset()))


def test_keras_fit_takes_the_epochs_in_turn(words):
    batches = PairBatches(*random_pairs(120, 10), words, words, batch_tokens=200, seed=3)
    seen = []

    class Sees(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = keras.layers.Embedding(20, 20)

        def call(self, inputs):
            return self.embedding(inputs["decoder_token_ids"])

        def train_step(self, data):
            seen.append(data[1].numpy())
            return super().train_step(data)

    model = Sees()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, run_eagerly=True)
    model.fit(batches.epochs(), steps_per_epoch=batches.num_batches, epochs=3, shuffle=False, verbose=0)
    assert same(seen, [batch[1] for epoch in in_epochs(batches, 3) for batch in epoch])


def test_pairs_over_the_maximum_are_dropped_and_counted(words):
    sources, targets = ["fox " * 9, "fox " * 10, "fox"], ["dog", "dog", "dog " * 10]
    batches = PairBatches(sources, targets, words, words, max_length=10)
    assert (batches.num_examples, batches.num_dropped) == (1, 2)
    assert pairs_of(batches_of(batches.dataset()), words) == [(sources[0].strip(), "dog")]


def test_a_line_of_a_megabyte_is_dropped(words):
    batches = PairBatches(["fox " * 250_000, "fox"], ["dog", "dog"], words, words)
    assert (batches.num_examples, batches.num_dropped) == (1, 1)


def test_what_cannot_be_batched(words):
    with pytest.raises(ValueError, match="targets: expected 2, one for each source, got 1"):
        PairBatches(["fox", "dog"], ["fox"], words, words)
    with pytest.raises(ValueError, match="max_length: of 1 pairs none has at most 3 tokens a side"):
        PairBatches(["fox fox fox"], ["fox"], words, words, max_length=3)
    with pytest.raises(ValueError, match="max_length: of 0 pairs none"):
        PairBatches([], [], words, words)
    with pytest.raises(ValueError, match="batch_tokens: expected 6 or more, the longest example, got 5"):
        PairBatches(["fox fox fox"], ["fox"], words, words, batch_tokens=5)


def test_a_small_set_still_makes_some_batches(words):
    sources, targets = random_pairs(60, 12)
    assert PairBatches(sources, targets, words, words).num_batches >= 10
    assert PairBatches(sources, targets, words, words, min_batches=1).num_batches == 1


def test_few_epochs_take_fewer_shapes(words):
    pairs = random_pairs(2_000, 40)
    shapes = [
        len(PairBatches(*pairs, words, words, batch_tokens=500, num_epochs=num_epochs).shapes)
        for num_epochs in (1, 10, 1000)
    ]
    assert shapes == sorted(shapes) and shapes[0] < shapes[-1] == 16


def test_little_padding_in_few_shapes():
    random = np.random.default_rng(0)
    source = np.maximum(2, random.normal(16, 5, 20_000).astype(int))
    widths = np.stack([source, np.maximum(2, source + random.integers(-2, 3, 20_000))])
    widths = widths[:, np.lexsort((widths[1], widths[0], widths.max(axis=0)))]
    batches = list(cut(widths, choose_steps(widths, 16), 4096))
    num_computed = sum(rows * (source + target) for *_, (rows, source, target) in batches)
    assert widths.sum() / num_computed > 0.9
    assert len({shape for *_, shape in batches}) <= 16
    assert all(stop - start == rows and rows % 8 == 0 for start, stop, (rows, *_) in batches[:-1])


@given(st.lists(st.tuples(*[st.integers(1, 9)] * 2), min_size=1, max_size=9), st.integers(1, 9))
def test_the_parting_has_the_least_padding(pairs, num_shapes):
    widths = np.array(sorted(pairs, key=max)).T

    def least(stop: int, num_runs: int) -> float:
        if stop == 0:
            return 0
        if num_runs == 0:
            return np.inf
        run = [(stop - start) * widths[:, start:stop].max(axis=1).sum() for start in range(stop)]
        return min(run[start] + least(start, num_runs - 1) for start in range(stop))

    steps = choose_steps(widths, num_shapes)
    assert steps[-1] == 0 and steps == sorted(set(steps), reverse=True) and len(steps) <= num_shapes
    stops = [widths.shape[1], *steps[:-1]]
    cost = sum(
        (stop - start) * widths[:, start:stop].max(axis=1).sum()
        for start, stop in zip(steps, stops, strict=True)
    )
    assert cost == least(widths.shape[1], num_shapes)


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_real_tokenizers_on_files(tmp_path, kind):
    sources, targets = random_pairs(100, 15)
    path = tmp_path / "pairs.tsv.gz"
    lines = [f"{source}\t{target}\n" for source, target in zip(sources, targets, strict=True)]
    path.write_bytes(gzip.compress("".join(lines).encode()))
    pairs = read_pairs(path)
    source_tokenizer = train_tokenizer(pairs.sources, kind, 400)
    target_tokenizer = train_tokenizer(pairs.targets, kind, 300)
    batches = PairBatches(*pairs, source_tokenizer, target_tokenizer, seed=0)
    epoch = batches_of(batches.dataset())
    for batch in epoch:
        check_batch(*batch, target_tokenizer.start_id, target_tokenizer.end_id)
    found = [target for batch in epoch for target in target_tokenizer.detokenize(batch[1]).numpy() if target]
    assert sorted(text.decode() for text in found) == sorted(targets)


def test_encode_sources(words):
    inputs = encode_sources(["fox", "", "the lazy dog", "the quick brown fox"], words, max_length=4)
    fox, the, lazy, dog, quick, brown = words.tokenize(["fox the lazy dog quick brown"]).numpy()[0].tolist()
    assert inputs["token_ids"].numpy().tolist() == [
        [fox, END, 0, 0], [END, 0, 0, 0], [the, lazy, dog, END], [the, quick, brown, END],
    ]  # fmt: skip
    assert inputs["padding_mask"].dtype == tf.bool
    assert np.array_equal(inputs["padding_mask"], inputs["token_ids"] != 0)
    assert inputs["token_ids"].dtype == tf.int32


def test_encode_sources_equals_training_and_runs_in_a_graph(words):
    sources, targets = random_pairs(20, 12)
    encode = tf.function(
        lambda strings: encode_sources(strings, words, 64), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    ((inputs, _, _),) = batches_of(PairBatches(sources, targets, words, words, min_batches=1).dataset())
    order = [text.decode() for text in words.detokenize(inputs["token_ids"]).numpy()]
    served = encode(tf.constant(order))
    assert np.array_equal(served["token_ids"], inputs["token_ids"])
    assert np.array_equal(served["padding_mask"], inputs["padding_mask"])
    assert encode(tf.constant([], tf.string))["token_ids"].shape == (0, 1)
    assert encode(tf.constant([""]))["token_ids"].numpy().tolist() == [[END]]
