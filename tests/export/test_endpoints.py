"""What SavedModels read in a graph is what tasks and other exports read on the host, token for token."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import CharacterTokenizer, SentencePieceTokenizer
from keras_tfm.export import graph_readers
from keras_tfm.generation import DecodingOptions
from keras_tfm.tasks.asking import answerer_of
from keras_tfm.tasks.text.text_signature import text_signature, tokenizer_reads
from keras_tfm.tasks.text.writing import Writing, prompts_signature
from tests.data.tokenizers.test_added import KINDS

LINES = ["Ada sings in Rome, and Bob   listens.", "Käse und Brot, 東京", "who sings? where? what?", "x" * 40]
INPUTS = ["token_ids", "segment_ids", "padding_mask"]
ROOM = 24  # tokens
TOKENIZERS = {
    "bert": lambda: KINDS["bert"]([]),
    "roberta": lambda: KINDS["roberta"]([]),
    "pieces": lambda: SentencePieceTokenizer.train(LINES * 3, 300),
    "characters": lambda: CharacterTokenizer.train(LINES),
}
TEXT = st.text(st.sampled_from("Ada sings?wherKäse,東京\t[MASK]x▁  "), max_size=60)


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def both_read(tokenizer, kind, examples, strings, **options):
    """The inputs that host and graph make of `examples`, which are `strings` there, and what is known."""
    signature = text_signature(tokenizer, ROOM, INPUTS, dict, {"kind": "arrays"}, kind, **options)
    host = answerer_of(signature)
    read = host.read_all(examples)
    entries = {name: value for name, value in signature.reads.items() if name != "kind"}
    reader = graph_readers.READERS[kind](**{**entries, "tokenizer": signature.tokenizer})
    inputs, known = reader(*strings)
    rows = [row for rows, _ in read for row in rows]
    return host.reader.join(rows), {name: np.array(x, "int32") for name, x in inputs.items()}, rows, known


def same_inputs(host, graph):
    for name in INPUTS:
        np.testing.assert_array_equal(host[name], graph[name], err_msg=name)


@given(st.lists(TEXT, min_size=1, max_size=6))
def test_texts(tokenizer, texts):
    host, graph, *_ = both_read(tokenizer, "texts", texts, [tf.constant(texts)])
    same_inputs(host, graph)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
def test_pairs(tokenizer, pairs):
    columns = [tf.constant(side) for side in zip(*pairs, strict=True)]
    host, graph, *_ = both_read(tokenizer, "texts", pairs, columns, pairs=True)
    same_inputs(host, graph)


@given(st.lists(TEXT, min_size=1, max_size=6))
def test_texts_or_pairs(tokenizer, texts):
    host, graph, *_ = both_read(tokenizer, "texts", texts, [tf.constant(texts)], pairs=None)
    same_inputs(host, graph)


@pytest.mark.parametrize("marks", ["", ",.?"])
@given(
    st.lists(
        st.text(st.sampled_from("Ad?, \t\v\u00a0\u2028\u3000\x1c\x85東"), max_size=30), min_size=1, max_size=6
    )
)
def test_words(tokenizer, marks, texts):
    host, graph, rows, is_first = both_read(tokenizer, "words", texts, [tf.constant(texts)], marks=marks)
    same_inputs(host, graph)
    assert [row.more.firsts for row in rows] == [np.flatnonzero(row).tolist() for row in is_first.to_list()]


@given(st.lists(st.tuples(TEXT, st.tuples(TEXT, TEXT, TEXT)), min_size=1, max_size=4))
def test_choices(tokenizer, examples):
    columns = [tf.constant(side) for side in zip(*examples, strict=True)]
    host, graph, _, count = both_read(tokenizer, "choices", examples, columns, pairs=True)
    same_inputs(host, graph)
    assert count == 3


@pytest.mark.parametrize("tokenizer", ["bert", "roberta", "pieces"], indirect=True)  # with offsets
@given(TEXT, st.lists(TEXT, min_size=1, max_size=8))
def test_questions(tokenizer, question, contexts):
    """A window of a context begins at the same token, and its tokens at the same characters."""
    question, context = question[:4], " ".join(contexts)
    options = {"stride": 6, "of_context": tokenizer_reads(tokenizer)}
    if options["of_context"]["kind"] == "tokenizers":
        options["of_context"]["ordinary"] = list(tokenizer.ordinary)
    host, graph, rows, known = both_read(
        tokenizer, "questions", [(question, context)], [tf.constant([question]), tf.constant([context])],
        **options,
    )  # fmt: skip
    same_inputs(host, graph)
    assert known["num_windows"].numpy().tolist() == [len(rows)]
    for row, starts, ends in zip(rows, known["starts"].to_list(), known["ends"].to_list(), strict=True):
        of_bytes = [context.encode()[start:end].decode() for start, end in zip(starts, ends, strict=True)]
        of_host = [context[start:end] for start, end in zip(*row.more, strict=True)]
        assert [x.strip(" ▁\ufffd") for x in of_bytes] == [x.strip(" ▁\ufffd") for x in of_host]


@pytest.mark.parametrize("around", [([], [2]), ([3, 1], [2]), ([], [1])])
@given(st.lists(TEXT, min_size=1, max_size=6))
def test_prompts(tokenizer, around, texts):
    """Sources, of which more than the room is cut."""
    before, after = around
    writing = Writing(None, tokenizer, 1, (2,), (), DecodingOptions(1))
    signature = prompts_signature(
        tokenizer, writing, [], before=before, after=after, max_length=ROOM, cuts=True
    )
    host = answerer_of(signature).read(texts)
    graph, _ = graph_readers.Prompts(tokenizer, ROOM, before, after, True)(tf.constant(texts))
    np.testing.assert_array_equal(host["padding_mask"], graph["padding_mask"])
    is_read = host["padding_mask"] > 0
    np.testing.assert_array_equal(host["token_ids"][is_read], graph["token_ids"].numpy()[is_read])


def test_blanks():
    tokenizer = TOKENIZERS["bert"]()
    texts = ["[MASK] sings in [MASK]", "no blank", "a [MASK] " * 20]
    options = {"blank": tokenizer.mask_id, "most": 8}
    host, graph, rows, is_blank = both_read(tokenizer, "blanks", texts, [tf.constant(texts)], **options)
    places = [row[blanks].tolist() for row, blanks in zip(graph["mask_positions"], is_blank, strict=True)]
    assert [row.more for row in rows] == [places[0], places[2][:8], places[2][8:]] and not places[1]
    np.testing.assert_array_equal(host["token_ids"][:2], graph["token_ids"][[0, 2]])
