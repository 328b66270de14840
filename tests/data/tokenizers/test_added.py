"""Added tokens of every kind of tokenizer against the `tokenizers` library: ids, offsets, files, exports."""

import functools
import io
import random
import re
import string

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
import tokenizers

from keras_tfm.data import (
    BERTTokenizer,
    ByteLevelTokenizer,
    CLIPTokenizer,
    DataError,
    SentencePieceTokenizer,
    load_tokenizer,
    read_huggingface_tokenizer,
)
from keras_tfm.data.tokenizers.added import FLAGS, AddedToken, AddedTokens, appended
from keras_tfm.private.tensorflow_text import split
from keras_tfm.serving.readers import READERS
from keras_tfm.serving.tokens import by_tokenizers, spans_by_tokenizers
from keras_tfm.tasks.text.text_signature import text_signature

LINES = [f"the word {i} said hello to a lead of words, and lower slower world" for i in range(40)]
# (content, flags that are on)
TOKENS = [
    ("<user>", ()), ("<user>s", ()), ("[WORLD]", ("normalized",)), ("drugB1", ("normalized",)),
    ("<l>", ("lstrip",)), ("<r>", ("rstrip", "special")), ("<lr>", ("lstrip", "rstrip", "normalized")),
    ("word", ("single_word",)), ("lower", ("single_word", "normalized")), ("é.", ("normalized", "lstrip")),
    ("東京", ("normalized",)), ("\tx", ()), (" lead", ()), ("  ", ()), ("x y", ("normalized", "rstrip")),
    ("_1", ("single_word", "lstrip", "rstrip")), ("K", ("normalized", "single_word")),
]  # fmt: skip
FRAGMENTS = [
    *(content for content, _ in TOKENS), "<USER>", "[world]", "DRUGb1", "<LR>", "E\u0301.", "É.", "Word",
    "words", "LOWER", "\u212a", "k", "東 京", " ", " ", "   ", "\t", "\u3000", "\n", "\u2028", "a", "x", "1",
    "_", "é", "-", "\u200d", "ⓐ", "<", "hello world", ".", "<|", "#", "\u0301", "[MASK]", "[SEP]", "<mask>",
    "</s>", "<unk>", "",
]  # fmt: skip


def bert(added, vocabulary=None, **options):
    characters = sorted({*string.printable.lower(), *"é東京", *"abc"} - {*string.whitespace})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "lower", "words", "user"]
    pieces = [*words, *characters, *(f"##{x}" for x in characters)]
    special = [AddedToken(name, i, special=True) for i, name in enumerate(words[:5])]
    return BERTTokenizer(pieces, added=[*special, *placed(added, pieces)], **options)


def placed(added, pieces):
    """Added tokens whose ids follow the ids of `pieces`."""
    ids = {piece: i for i, piece in enumerate(pieces)}
    return [
        AddedToken(content, ids.setdefault(content, len(ids)), **dict.fromkeys(flags, True))
        for content, flags in added
    ]


@functools.cache
def learnt_by(kind, size):
    return kind.train(LINES, size).content


def byte_pairs(names, **options):
    def make(added):
        learnt = learnt_by(ByteLevelTokenizer, 300)
        tokens = [*names, *(token for token in learnt["tokens"] if token != "<|endoftext|>")]
        own = [AddedToken(x, i, special=True, lstrip=x == "<mask>") for i, x in enumerate(names)]
        own = own if "<mask>" in names else []
        return ByteLevelTokenizer(tokens, learnt["merges"], [*own, *placed(added, tokens)], **options)

    return make


def clip(added):
    learnt = learnt_by(CLIPTokenizer, 560)
    own = [
        AddedToken(x, learnt["tokens"].index(x), special=True) for x in ("<|startoftext|>", "<|endoftext|>")
    ]
    return CLIPTokenizer(**learnt, added=[*own, *placed(added, learnt["tokens"])])


@functools.cache
def sentence_piece_model():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*LINES, "é 東京 ① ½ naïve - . # <l> [w] _"] * 2), model_writer=model,
        vocab_size=90, minloglevel=2, num_threads=1, hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2,
        bos_id=-1, pad_piece="<pad>",
    )  # fmt: skip
    return model.getvalue()


def pieces(added):
    proto = sentencepiece.sentencepiece_model_pb2.ModelProto.FromString(sentence_piece_model())
    proto.trainer_spec.bos_piece = ""
    added = placed(added, [piece.piece for piece in proto.pieces])
    for name in appended(added, [piece.piece for piece in proto.pieces]):
        proto.pieces.add(piece=name, score=0.0, type=proto.SentencePiece.CONTROL)
    return SentencePieceTokenizer(proto.SerializeToString(), added)


ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
KINDS = {
    "bert": bert,
    "cased": lambda added: bert(added, lowercase=False, han=False),
    "roberta": byte_pairs(ROBERTA),
    "prefix": byte_pairs(ROBERTA, prefix_space=True),
    "gpt2": byte_pairs(["<|endoftext|>"]),
    "clip": clip,
    "pieces": pieces,
}


def drawn_tokens(kind, seed):
    """Some of TOKENS with drawn flags; what this kind cannot find as the library does is left out."""
    draw = random.Random(seed)
    tokens = [
        (content, [name for name in FLAGS if draw.random() < 0.3])
        for content, _ in draw.sample(TOKENS, 8)
        if content != "  "
    ]
    return [(content, flags) for content, flags in tokens if kind != "pieces" or is_plain(content, flags)]


def is_plain(content, flags):
    return "normalized" not in flags or content == " ".join(content.split())


def drawn_texts(kind, seed, count=60):
    draw = random.Random(seed)
    # The library looks up one character with its marks at a time, SentencePiece the longest string.
    barred = ("\u0301", "\u200d", "\u2028") if kind == "pieces" else ()
    fragments = [x for x in FRAGMENTS if not any(y in x for y in barred)] + ["\0"] * (not barred)
    return ["".join(draw.choices(fragments, k=draw.randrange(12))) for _ in range(count)]


def tokenizer_of(kind, added, folder):
    """Ours, written to the folder for the library too."""
    ours = KINDS[kind](added)
    ours.save_huggingface(folder)
    return ours


def assert_same(ours, folder, texts):
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = ours.tokenize(texts).to_list()
    for text, row, expected in zip(
        texts, rows, theirs.encode_batch(texts, add_special_tokens=False), strict=True
    ):
        assert row == expected.ids, (text, [ours.tokens[i] for i in row], expected.tokens)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def all_tokens(kind, tmp_path_factory):
    """(A tokenizer with all TOKENS, the folder that it wrote for the library)."""
    folder = tmp_path_factory.mktemp(kind)
    return tokenizer_of(kind, TOKENS, folder), folder


def test_ids_are_the_librarys(kind, all_tokens):
    ours, folder = all_tokens
    assert_same(ours, folder, drawn_texts(kind, 0, 400))


@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 6))])
def test_drawn_flags(kind, seed, tmp_path):
    tokens = drawn_tokens(kind, seed)
    assert_same(tokenizer_of(kind, tokens, tmp_path), tmp_path, drawn_texts(kind, seed + 1))


def test_offsets_are_the_librarys(kind, all_tokens):
    ours, folder = all_tokens
    # What vanishes, or is one space of several, belongs to a token here and not there.
    barred = re.compile("|".join([r"\s\s", "[\u200d\u0301\0]", *map(re.escape, ours.ordinary)]))
    texts = [text.strip() for text in drawn_texts(kind, 7, 800) if not barred.search(text)]
    spans = spans_by_tokenizers(folder, kind == "pieces" or ours.ordinary)
    added = {token.token_id for token in ours.added if token.content not in ours.ordinary}
    count = 0
    columns = (x.to_list() for x in ours.tokenize_with_offsets(texts))
    for text, row, starts, ends, (ids, expected) in zip(texts, *columns, spans(texts), strict=True):
        assert row == ids, text
        begins = np.cumsum([0, *(len(x.encode()) for x in text)])
        followers = [first for first, _ in expected[1:]] + [len(text)] * bool(expected)
        each = zip(row, starts, ends, expected, followers, strict=True)
        for token_id, start, end, (first, last), follower in each:
            # The library counts a space between two tokens to both, if both may hold it.
            if token_id in added and last <= follower:
                assert (start, end) == (begins[first], begins[last]), (text, ours.tokens[token_id])
                count += 1
    assert count > 100


def test_added_tokens_are_kept(kind, all_tokens, tmp_path):
    """In a RUN, in a folder of transformers, and by the host's tokenizer of exports."""
    ours, folder = all_tokens
    ours.save(tmp_path)
    again, back = load_tokenizer(tmp_path), read_huggingface_tokenizer(folder)
    assert again.added == ours.added == back.added and again.tokens == ours.tokens == back.tokens
    texts = drawn_texts(kind, 3)
    expected = ours.tokenize(texts).to_list()
    assert again.tokenize(texts).to_list() == expected == by_tokenizers(folder)(texts)
    assert ours.tokenize([]).shape[0] == 0


@pytest.mark.parametrize(
    "name", ["pieces", *(pytest.param(x, marks=pytest.mark.slow) for x in ("bert", "clip", "gpt2"))]
)
def test_a_saved_model_finds_added_tokens(name, tmp_path):
    tokens = [(content, flags) for content, flags in TOKENS if is_plain(content, flags)]
    module = tf.Module()
    module.tokenizer = ours = KINDS[name](tokens)
    module.tokenize = tf.function(
        lambda text: module.tokenizer.tokenize(text).to_tensor(-1),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    tf.saved_model.save(module, tmp_path / "saved")
    texts = drawn_texts(name, 3)
    np.testing.assert_array_equal(
        tf.saved_model.load(tmp_path / "saved").tokenize(tf.constant(texts)),
        ours.tokenize(texts).to_tensor(-1),
    )


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([("a\0b", ())], r"'a\\x00b': expected no U\+0000 in it"),
        ([("\U0010ffff", ())], r"expected no U\+10FFFF"),
        (
            [("<A>", ("normalized",)), ("<a>", ("normalized",))],
            "'<A>' and '<a>' are one in a normalised text",
        ),
        ([("\u0301", ("normalized",))], "nothing of it is left"),
        ([("<r>", ("rstrip",)), ("  ", ("lstrip",))], "'<r>' takes the white space behind it"),
    ],
)
def test_what_a_graph_cannot_find_is_refused(tokens, message):
    with pytest.raises(ValueError, match=message):
        bert(tokens)


def test_a_normalised_token_of_spaces_is_refused_for_sentence_pieces():
    with pytest.raises(ValueError, match=r"' lead': expected single spaces inside"):
        pieces([(" lead", ("normalized",))])


def test_ids_must_follow_the_vocabulary():
    with pytest.raises(ValueError, match="'<b>': expected the id 3, got 4"):
        appended([AddedToken("<a>", 2), AddedToken("<b>", 4)], ["x", "y"])
    with pytest.raises(ValueError, match="expected each token once"):
        appended([AddedToken("<a>", 2), AddedToken("<a>", 3)], ["x", "y"])
    with pytest.raises(ValueError, match="expected an id and a content, got 3"):
        AddedToken.of(3)
    with pytest.raises(ValueError, match=r"expected true or false, got \{'lstrip': 1\}"):
        AddedToken.of({"id": 1, "content": "a", "lstrip": 1})
    with pytest.raises(ValueError, match="'<a>': expected a piece of the model, got the id 900"):
        SentencePieceTokenizer(pieces([]).model, [AddedToken("<a>", 900)])


def test_words_begin_with_a_space_but_added_tokens_do_not():
    ours = KINDS["roberta"]([("<user>", ())])
    words = ["<user>", "hello", "<mask>", "x<user>", ""]
    plain = ours.tokenize([" hello", " x", " "]).to_list()
    user = ours.tokens.index("<user>")
    expected = [[user], plain[0], [ours.mask_id], [*plain[1], user], plain[2]]
    assert ours.tokenize_words(words).to_list() == expected
    assert ours.with_prefix_space().tokenize(words[:4]).to_list() == expected[:4]


def test_the_host_reads_words_alike(tmp_path):
    ours = KINDS["roberta"]([("<user>", ())])
    signature = text_signature(ours, 64, ["token_ids"], dict, {}, kind="words")
    signature.write_files(tmp_path)
    reads = dict(signature.reads)
    reader = READERS[reads.pop("kind")](tmp_path, **reads)
    words = ["<user>", "hello", "<mask>", "x<user>", "", "hello<user>world"]
    ids = [x for row in ours.tokenize_words(words).to_list() for x in row]
    (((row,), _),) = reader.read([words])
    assert row.ids == [ours.start_id, *ids, ours.end_id]


def test_thousands_of_tokens_are_found():
    tokens = [AddedToken(f"<{i}>", i) for i in range(3000)]
    found = AddedTokens(tokens).tokenize(
        tf.constant(["<7><2999>, <30000>"]), lambda x: tf.ragged.range(tf.zeros_like(x, tf.int32))
    )
    assert found.to_list() == [[7, 2999]]


def test_a_damaged_file_of_added_tokens_is_refused(tmp_path):
    pieces(TOKENS[:1]).save(tmp_path)
    (tmp_path / "tokenizer.added.json").write_text('{"added": [3]}')
    with pytest.raises(DataError, match="expected an id and a content"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("delimiters", "kept"), [(" ", ""), ("<a>|b", "<a>|b"), (" |,", ","), ("é", "é")])
def test_texts_are_split_as_tensorflow_text_does(delimiters, kept):
    for texts in (["so <a> be, it", "", "b<a><a>", " ", "né é"], [""], []):
        texts = tf.constant(texts, tf.string)
        expected = tf_text.regex_split_with_offsets(texts, delimiters, kept)
        for ours, theirs in zip(split(texts, delimiters, kept), expected, strict=True):
            assert ours.to_list() == theirs.to_list() and ours.row_splits.dtype == theirs.row_splits.dtype
