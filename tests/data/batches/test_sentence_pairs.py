"""Pairs of texts: what they are made of, their labels, packing, epochs that recur and can be resumed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tfm.data import BERTTokenizer, Masking, SentencePairs

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NUMBERS = [str(number) for number in range(1_000)]
TOKENIZER = BERTTokenizer(
    [*SPECIAL, ".", *"0123456789", *(f"##{digit}" for digit in "0123456789"), *NUMBERS[10:]]
)
NOTHING = Masking.of(TOKENIZER, share=0.0)  # texts stay readable


def documents_of(*counts, width=3):
    """Documents of so many sentences; a sentence is `width` numbers and a point, numbers counting on."""
    number = iter(range(10**6))
    return [
        " ".join(" ".join(str(next(number) % 1_000) for _ in range(width)) + "." for _ in range(count))
        for count in counts
    ]


def pairs_of(documents, masking=NOTHING, **options):
    return SentencePairs(documents, TOKENIZER, masking, **{"max_length": 24, "batch_size": 8} | options)


def texts_of(batches, num_epochs=1):
    """[(first text, second text, label)] of the rows of so many epochs, as lists of ids."""
    found = []
    for inputs, labels, weights in batches.epochs().take(num_epochs * batches.num_batches):
        for ids, segments, mask, label, weight in zip(
            inputs["token_ids"].numpy(), inputs["segment_ids"].numpy(), inputs["padding_mask"].numpy(),
            labels["nsp"].numpy(), weights["nsp"].numpy(), strict=True,
        ):  # fmt: skip
            length = mask.sum()
            assert mask[:length].all() and not ids[length:].any() and not segments[length:].any()
            if not weight:
                assert not length
                continue
            first, second = ids[:length][segments[:length] == 0], ids[:length][segments[:length] == 1]
            assert first[0] == TOKENIZER.start_id and first[-1] == second[-1] == TOKENIZER.end_id
            found.append((first[1:-1].tolist(), second[:-1].tolist(), int(label)))
    return found


def test_the_figures_example():
    """[CLS] Cancel my flight [SEP] And the hotel [SEP]: segments 0 x 5 and 1 x 4, nine places."""
    tokenizer = BERTTokenizer([*SPECIAL, "cancel", "my", "flight", "and", "the", "hotel"])
    documents = ["Cancel my flight\nAnd the hotel", "the the\nthe the the"]
    batches = SentencePairs(documents, tokenizer, Masking.of(tokenizer, share=0.0), max_length=12)
    rows = []
    for inputs, labels, _ in batches.epochs().take(20):
        rows += [(ids, segments, mask) for ids, segments, mask, label in zip(
            *(inputs[name].numpy() for name in ("token_ids", "segment_ids", "padding_mask")),
            labels["nsp"].numpy(), strict=True) if 5 in ids and not label]  # fmt: skip
    ids, segments, mask = rows[0]
    assert ids.tolist() == [2, 5, 6, 7, 3, 8, 9, 10, 3, 0, 0, 0] and mask.sum() == 9
    assert segments.tolist() == [0] * 5 + [1] * 4 + [0] * 3


def owners(documents):
    """{number's id: document}: each number stands in one document."""
    return {
        int(i): document
        for document, text in enumerate(documents)
        for i in np.unique(TOKENIZER.tokenize([text]).flat_values)
        if i != TOKENIZER.vocabulary.index(".")
    }


@pytest.fixture(scope="module")
def corpus():
    documents = documents_of(*np.random.default_rng(0).integers(2, 12, 40))
    return documents, owners(documents), pairs_of(documents, seed=3)


def test_false_pairs_are_half_and_of_another_document(corpus):
    _, owner, batches = corpus
    labels = []
    for first, second, label in texts_of(batches, 40):
        sides = [{owner[i] for i in text if i in owner} for text in (first, second)]
        assert len(sides[0]) == len(sides[1]) == 1  # each text is of one document
        assert (sides[0] != sides[1]) == bool(label)
        labels.append(label)
    assert len(labels) > 2_000
    assert np.mean(labels) == pytest.approx(0.5, abs=3 * 0.5 / np.sqrt(len(labels)))


def test_a_true_pair_is_what_stands_there(corpus):
    """The second text begins where the first ends, at the end of a sentence, unless it was cut elsewhere."""
    documents, owner, batches = corpus
    flat = [TOKENIZER.tokenize([text]).flat_values.numpy().tolist() for text in documents]
    point = TOKENIZER.vocabulary.index(".")
    for first, second, label in texts_of(batches):
        assert first[-1] == point  # both kinds
        if not label:
            text = flat[owner[first[-2]]]
            joined = first + second
            assert any(text[i : i + len(joined)] == joined for i in range(len(text)))


@pytest.mark.slow
def test_every_other_sentence_is_as_likely_in_a_false_pair():
    documents = documents_of(2, 3, 5, 6, 4)  # twenty sentences
    batches = pairs_of(documents, max_length=64)
    ids = TOKENIZER.tokenize(documents).flat_values.numpy().tolist()
    begins = [ids[0]] + [i for i, before in zip(ids[1:], ids, strict=False) if before == ids[3]]
    counts, total = dict.fromkeys(begins, 0), 0
    for first, second, label in texts_of(batches, 1_500):
        if label and ids[0] in first:
            counts[second[0]] += 1
            total += 1
    others = np.array(list(counts.values())[2:])  # but for the document's own two
    assert not any(list(counts.values())[:2]) and total > 600
    chi_square = ((others - others.mean()) ** 2 / others.mean()).sum()
    assert chi_square < 18 + 4 * np.sqrt(2 * 18)


@pytest.mark.slow
def test_sentence_order_turns_half_of_the_pairs_around():
    documents = documents_of(*[6] * 30)
    batches = pairs_of(documents, objective="order")
    labels = []
    for first, second, label in texts_of(batches, 20):
        order = [max(text) for text in (first, second)]
        assert (order[0] > order[1]) == bool(label)
        labels.append(label)
    assert np.mean(labels) == pytest.approx(0.5, abs=3 * 0.5 / np.sqrt(len(labels)))


def test_without_pairs_a_row_is_one_text():
    documents = documents_of(1, 9)
    batches = pairs_of(documents, objective="none", max_length=16)
    assert batches.num_dropped == 0
    inputs, labels, weights = next(iter(batches.dataset()))
    assert labels.shape == weights.shape == (8, 0) and not inputs["segment_ids"].numpy().any()
    lengths = inputs["padding_mask"].numpy().sum(axis=1)
    assert sorted(lengths[lengths > 0].tolist()) == [6, 6, 16, 16]  # nine sentences in rows of four and one
    spans = pairs_of(documents, Masking.of(TOKENIZER, "span"), objective="none", max_length=16)
    inputs, labels, weights = next(iter(spans.dataset()))
    assert inputs["span_boundaries"].shape == (*labels["mlm"].shape, 2) and labels.keys() == {"mlm", "sbo"}


def test_an_epoch_has_every_stretch_once(corpus):
    documents, owner, batches = corpus
    assert len(texts_of(batches)) == batches.num_rows
    assert batches.dataset().cardinality() == batches.num_batches == -(-batches.num_rows // 8)
    firsts = [{owner[i] for i in first if i in owner}.pop() for first, _, _ in texts_of(batches)]
    assert set(firsts) == set(range(len(documents)))


def arrays(dataset, count=None):
    return [x for batch in dataset.take(count or -1) for x in map(np.asarray, tf.nest.flatten(batch))]


def same(first, second):
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def test_an_epoch_is_fixed_by_its_number_and_the_seed():
    documents = documents_of(*[7] * 20)
    batches = pairs_of(documents, Masking.of(TOKENIZER), seed=1)
    again = pairs_of(documents, Masking.of(TOKENIZER), seed=1)
    first, second = arrays(batches.dataset(0)), arrays(batches.dataset(1))
    assert same(second, arrays(again.dataset(1))) and not same(first, second)
    assert not same(second, arrays(pairs_of(documents, Masking.of(TOKENIZER)).dataset(1)))
    assert same(first + second, arrays(batches.epochs(), 2 * batches.num_batches))


def test_static_masking_recurs_in_another_order():
    batches = pairs_of(documents_of(*[7] * 20), Masking.of(TOKENIZER), num_drawings=2)
    epochs = [
        [inputs["token_ids"].numpy().tobytes() for inputs, *_ in batches.dataset(epoch)] for epoch in range(3)
    ]
    assert sorted(epochs[0]) == sorted(epochs[2]) and epochs[0] != epochs[2]
    assert sorted(epochs[0]) != sorted(epochs[1])


def test_an_iterator_goes_on_where_it_was_saved(tmp_path):
    batches = pairs_of(documents_of(*[7] * 20), Masking.of(TOKENIZER, "span"), seed=1)
    iterator = iter(batches.epochs())
    for _ in range(batches.num_batches + 2):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "position"))
    expected = [np.asarray(x) for x in tf.nest.flatten(next(iterator))]
    restored = iter(pairs_of(documents_of(*[7] * 20), Masking.of(TOKENIZER, "span"), seed=1).epochs())
    tf.train.Checkpoint(iterator=restored).read(path).assert_consumed()
    assert same(expected, [np.asarray(x) for x in tf.nest.flatten(next(restored))])


@settings(max_examples=settings.default.max_examples // 3)  # a dataset is made for each
@given(
    st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=2, max_size=6),
    st.integers(7, 40),
    st.sampled_from(["next", "order", "none"]),
)
def test_any_documents_pack(widths, max_length, objective):
    """Sentences of any length, empty ones and too long ones too: no text is empty, no row too long."""
    documents = ["\n".join(" ".join(["77"] * width) for width in sentences) for sentences in widths]
    least = 1 if objective == "none" else 2
    enough = [sum(width > 0 for width in sentences) for sentences in widths]
    possible = max(enough) >= least and (objective != "next" or sum(count > 0 for count in enough) > 1)
    if not possible:
        with pytest.raises(ValueError, match=r"too few of .* have enough sentences"):
            pairs_of(documents, objective=objective, max_length=max_length)
        return
    batches = pairs_of(documents, objective=objective, max_length=max_length)
    assert batches.num_dropped == sum(count < least for count in enough)
    for inputs, *_ in batches.dataset(1):
        ids, mask = inputs["token_ids"].numpy(), inputs["padding_mask"].numpy()
        ends = (ids == TOKENIZER.end_id).sum(axis=1)
        assert ids.shape[1] == max_length and set(ends) <= {0, 1 if objective == "none" else 2}
        text = (ids > 4).sum(axis=1)
        assert (text + ends + (ids[:, 0] == TOKENIZER.start_id) == mask.sum(axis=1)).all()
        if objective != "none":
            assert ((inputs["segment_ids"].numpy().sum(axis=1) > 1) == (ends > 0)).all()


def test_refusals():
    for options, message in (
        ({"objective": "both"}, "objective: expected one of next, order, none, got 'both'"),
        ({"max_length": 4}, "max_length: expected 5 or more, got 4"),
        ({"num_drawings": 0}, "expected 1 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            pairs_of(documents_of(3, 3), **options)
    with pytest.raises(ValueError, match="too few of 1 have enough sentences"):
        pairs_of(documents_of(9))  # of another document there is nothing


def test_keras_trains_on_it():
    """The batch's structure is what a model of two heads takes."""
    batches = pairs_of(documents_of(*[7] * 8), Masking.of(TOKENIZER))
    inputs, labels, weights = batches.dataset().element_spec
    assert {name: spec.dtype for name, spec in inputs.items()} == {
        "token_ids": tf.int32, "padding_mask": tf.bool, "segment_ids": tf.int32, "mask_positions": tf.int32,
    }  # fmt: skip
    assert labels.keys() == weights.keys() == {"mlm", "nsp"}
    assert keras.tree.map_structure(lambda spec: spec.dtype, labels) == {"mlm": tf.int32, "nsp": tf.int32}
