"""The byte-level tokenizer against Hugging Face's `tokenizers` on real text, and on any."""

import json
from pydoc_data import topics

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import ByteLevelTokenizer, load_tokenizer
from keras_tfm.data.sources.files import DataError
from keras_tfm.generation import StopSequences
from tests.data.tokenizers.characters import assert_every_character_is_read_alike

TEXTS = [text for text in topics.topics.values() if text.strip()]
ODD = [
    "", " ", "  ", "a  b", "a \n b", "\n\n x", "tabs\t\tand  \t spaces   ", "it's they'll I'VE", "x²½Ⅳ٣",
    "Ελλάδα λόγος", "日本語 テキスト", "नमस्ते", "👩‍👩‍👧 ok", "a\u00a0\u00a0b\u3000c", "e\u0301",
    "\x1c\x1dcontrol\x00\x7f", "\0",
    "<|endoftext|>", "Ġ Ċ", "\u2028line\u2029", "\ufffd", "'s't're", "  leading", "end  ",
]  # fmt: skip


@pytest.fixture(scope="module")
def ours():
    return ByteLevelTokenizer.train(TEXTS, 1_000)


@pytest.fixture(scope="module")
def content(ours):
    """{"tokens": ..., "merges": ...}"""
    return json.loads(ours._content)


@pytest.fixture(scope="module")
def theirs(content):
    ids = {token: i for i, token in enumerate(content["tokens"])}
    merges = [tuple(merge.split(" ")) for merge in content["merges"]]
    model = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return model


def assert_same(ours, theirs, texts):
    for text, row in zip(texts, ours.tokenize(texts).to_list(), strict=True):
        assert row == theirs.encode(text).ids, text


def test_real_text(ours, theirs):
    assert ours.vocabulary_size == 1_000
    assert_same(ours, theirs, TEXTS)
    assert [text.decode() for text in ours.detokenize(ours.tokenize(TEXTS)).numpy()] == TEXTS


def test_odd_text(ours, theirs):
    assert_same(ours, theirs, ODD)
    assert [text.decode() for text in ours.detokenize(ours.tokenize(ODD)).numpy()] == ODD


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_any_text_comes_back(ours, texts):
    texts = [text.replace("\U0010ffff", "").replace("\U0010fffe", "") for text in texts]
    assert [text.decode() for text in ours.detokenize(ours.tokenize(texts)).numpy()] == texts


def test_every_assigned_character_is_split_alike(ours, theirs):
    assert_every_character_is_read_alike(ours, theirs)


def test_a_long_word_among_many_takes_no_memory(ours, theirs):
    """Memory grows with all words together, not with their number times the longest one."""
    assert_same(ours, theirs, ["x" * 50_000, "a b " * 50_000, ""])


def test_malformed_bytes_are_replaced(ours, content):
    tokens = content["tokens"]
    euro = [tokens.index("â"), tokens.index("Ĥ"), tokens.index("¬")]  # the bytes of "€"
    ragged = tf.ragged.constant([euro, euro[:2], [*euro[1:], tokens.index("a")], [ours.vocabulary_size]])
    texts = [text.decode() for text in ours.detokenize(ragged).numpy()]
    assert texts[0] == "€" and texts[1].strip("\ufffd") == "" and texts[3] == "\ufffd"
    assert texts[2].endswith("a") and texts[2].startswith("\ufffd")
    assert ours.detokenize(ours.tokenize([b"a\xff\xfeb"])).numpy()[0].decode().strip("ab") != ""


def test_ends_part_and_are_left_out(ours):
    row = ours.tokenize(["one"])[0].numpy()
    rows = np.array([[*row, ours.end_id, *row]])
    assert ours.detokenize(rows).numpy().tolist() == [b"one"]


def test_kept_and_traced(ours, tmp_path):
    ours.save(tmp_path)
    other = load_tokenizer(tmp_path)
    module = tf.Module()
    module.tokenizer = other
    module.tokenize = tf.function(
        lambda text: other.tokenize(text).to_tensor(-1), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, tmp_path / "saved")
    loaded = tf.saved_model.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.tokenize(tf.constant(ODD)), ours.tokenize(ODD).to_tensor(-1))
    assert load_tokenizer(tmp_path).tokenize([]).shape[0] == 0
    (tmp_path / "tokenizer.bytes.json").write_text('{"tokens": ["a"], "merges": []}')
    with pytest.raises(DataError, match=r"tokenizer\.bytes\.json"):
        load_tokenizer(tmp_path)


def test_gpt2s_files(content, theirs, tmp_path):
    ids = {token: i for i, token in enumerate(content["tokens"])}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    merges = "\n".join(["#version: 0.2", *content["merges"], ""])
    (tmp_path / "merges.txt").write_text(merges, "utf-8")
    assert_same(ByteLevelTokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt"), theirs, ODD)
    (tmp_path / "vocab.json").write_text(json.dumps(ids | {"more": 5}))
    with pytest.raises(ValueError, match="with the ids 0, 1"):
        ByteLevelTokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_a_stop_string_is_found_inside_tokens(ours):
    stop = StopSequences([b"yield", "€".encode()], ours.symbols, end_ids=[ours.end_id])
    for text, ends in (("we should yieldit", True), ("we should yiel", False), ("10 € more", True)):
        state, found = stop.start(1), False
        for token in ours.tokenize([text])[0].numpy():
            state, now = stop.advance(state, np.array([token]))
            found |= bool(now[0])
        assert found == ends


def test_impossible_vocabularies_are_refused():
    with pytest.raises(ValueError, match="must be at least 257; it is 256"):
        ByteLevelTokenizer.train(["a"], 256)
    with pytest.raises(ValueError, match="expected different ones"):
        ByteLevelTokenizer(["a", "a"], [])
    with pytest.raises(ValueError, match="expected every byte"):
        ByteLevelTokenizer(["a", "<|endoftext|>"], [])


# Encoders' special tokens -----------------------------------------------------------------------------

ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
DEBERTA = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]


@pytest.fixture(scope="module", params=[ROBERTA, DEBERTA], ids=["RoBERTa", "DeBERTa"])
def pair(request, content, tmp_path_factory):
    """Ours, with a made-up token as RoBERTa's has, and, out of the files that it saves, theirs."""
    learnt = [token for token in content["tokens"] if token != "<|endoftext|>"]
    ours = ByteLevelTokenizer(
        [*request.param[:4], *learnt, "madeupword0000", request.param[4]], content["merges"]
    )
    folder = tmp_path_factory.mktemp("tokenizer")
    ours.save_huggingface(folder)
    return ours, tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), folder


def test_special_tokens_are_recognised(pair):
    ours, theirs, _ = pair
    start, _, end, unknown, mask = (theirs.id_to_token(i) for i in (0, 1, 2, 3, ours.mask_id))
    assert (ours.start_id, ours.pad_id, ours.end_id) == (0, 1, 2) and ours.mask_id == ours.vocabulary_size - 1
    texts = [
        f"The {mask} of",
        f"a \n {mask}{mask} b",
        f"{start}a{end}",
        f"{mask}",
        f"  {unknown} x",
        "madeupword0000",
    ]
    for text, row in zip([*texts, *ODD], ours.tokenize([*texts, *ODD]).to_list(), strict=True):
        assert row == theirs.encode(text, add_special_tokens=False).ids, text
    assert ours.detokenize(ours.tokenize([f"The {mask} of"])).numpy() == [f"The{mask} of".encode()]


def test_pairs_are_put_together_alike(pair):
    ours, theirs, _ = pair
    first, second = ours.tokenize(["one", "another"]).to_list()
    expected = [ours.start_id, *first, *ours.between_ids, *second, ours.end_id]
    assert theirs.encode("one", "another").ids == expected


def test_an_encoders_files_are_read_again(pair, tmp_path):
    ours, _, folder = pair
    assert ByteLevelTokenizer.from_huggingface(folder)._content == ours._content
    ours.save(tmp_path)
    module = tf.Module()
    module.tokenizer = load_tokenizer(tmp_path)
    module.tokenize = tf.function(
        lambda text: module.tokenizer.tokenize(text).to_tensor(-1),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, tmp_path / "saved")
    texts = [*ODD, "a <mask> or [MASK]"]
    np.testing.assert_array_equal(
        tf.saved_model.load(tmp_path / "saved").tokenize(tf.constant(texts)),
        ours.tokenize(texts).to_tensor(-1),
    )
    assert ours.tokenize([]).shape[0] == 0
