"""CLIP's tokenizer against Hugging Face's `tokenizers` with CLIP's rules, on real text, and on any."""

import json
import unicodedata
from pydoc_data import topics

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from keras_tfm.data import CLIPTokenizer, DataError, load_tokenizer
from keras_tfm.data.tokenizers.huggingface import read_huggingface_special_tokens, read_huggingface_tokenizer
from tests.data.tokenizers.characters import assert_every_character_is_read_alike

LINES = [line for topic in topics.topics.values() for line in topic.splitlines() if line.strip()]
ODD = [
    "", " ", "  ", "a  b", "a \n b", "\n\n x", "it's they'll I'VE 'S", "x²½Ⅳ٣ 1234", "don''t!'s",
    "ΟΔΥΣΣΕΥΣ Σ ΑΣ. ας", "İstanbul ISPARTA ıi", "ẞ Ǆ ǅ K Å", "e\u0301 É \ufb01", "日本語 テキスト", "नमस्ते",
    "👩‍👩‍👧 ok", "a\u00a0\u00a0b\u3000c\u0085d\u2028e", "\x1c\x1dcontrol\x00\x7f", "\0", "Ġ Ċ </w> a</w>",
    "\ufffd \ue041", "<|endoftext", "word" * 200,
]  # fmt: skip
RULES = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""


@pytest.fixture(scope="module")
def ours():
    return CLIPTokenizer.train(LINES, 1_500)


@pytest.fixture(scope="module")
def theirs(ours):
    ids = {token: i for i, token in enumerate(ours.tokens)}
    merges = [tuple(merge.split(" ")) for merge in ours.content["merges"]]
    model = tokenizers.Tokenizer(
        tokenizers.models.BPE(ids, merges, end_of_word_suffix="</w>", unk_token="<|endoftext|>")
    )
    model.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(tokenizers.Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = pre_tokenizers.Split(tokenizers.Regex(RULES), behavior="removed", invert=True)
    model.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    names = ("<|startoftext|>", "<|endoftext|>")
    model.add_special_tokens([tokenizers.AddedToken(name, normalized=False) for name in names])
    return model


def assert_same(ours, theirs, texts):
    rows = ours.tokenize(texts).to_list()
    for text, row, expected in zip(texts, rows, theirs.encode_batch(texts), strict=True):
        assert row == expected.ids, text


def test_real_text(ours, theirs):
    assert ours.vocabulary_size == 1_500 and len(LINES) > 8_000
    assert_same(ours, theirs, LINES)


def test_odd_text(ours, theirs):
    assert_same(ours, theirs, ODD)


SPECIAL = ["<|startoftext|>a<|endoftext|>", "a <|endoftext|> <|ENDOFTEXT|>", "<|endoftext|><|endoftext|>"]


def test_special_tokens_are_recognised(ours, theirs):
    assert_same(ours, theirs, SPECIAL)
    assert ours.tokenize(SPECIAL[:1]).to_list()[0][::2] == [ours.start_id, ours.end_id]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_drawn_text(ours, theirs, texts):
    # Tables of different versions of Unicode disagree about code points that are no characters yet.
    assert_same(ours, theirs, ["".join(x for x in text if unicodedata.category(x) != "Cn") for text in texts])


def test_every_assigned_character_is_read_alike(ours, theirs):
    assert_every_character_is_read_alike(ours, theirs)


def test_words_come_back_with_spaces_between(ours):
    texts = ours.detokenize(ours.tokenize(["A photo, of 2 cats!", "ΑΣ Über"])).numpy().tolist()
    assert [text.decode() for text in texts] == ["a photo , of 2 cats !", "ασ über"]
    unknown = tf.ragged.constant([[ours.start_id, ours.vocabulary_size, ours.end_id, 0]])
    assert ours.detokenize(unknown).numpy()[0].decode() == "\ufffd"


def test_what_pads_may_be_a_token_of_texts(ours, tmp_path):
    other = CLIPTokenizer(ours.tokens, ours.content["merges"], pad="!</w>")
    assert other.pad_id == ours.tokens.index("!</w>") and ours.pad_id == ours.end_id
    row = [other.start_id, *other.tokenize(["so be it !"]).to_list()[0], other.end_id, other.pad_id]
    assert other.detokenize([row]).numpy() == [b"so be it !"]
    other.save_huggingface(tmp_path)
    assert CLIPTokenizer.from_huggingface(tmp_path).pad_id == other.pad_id


def test_kept_and_traced(ours, tmp_path):
    assert ours.save(tmp_path).name == "tokenizer.clip.json"
    module = tf.Module()
    module.tokenizer = load_tokenizer(tmp_path)
    assert type(module.tokenizer) is CLIPTokenizer
    module.tokenize = tf.function(
        lambda text: module.tokenizer.tokenize(text).to_tensor(-1),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,  # as tasks trace it
    )
    tf.saved_model.save(module, tmp_path / "saved")
    texts = [*ODD, *SPECIAL, b"a\xff\xfeb"]
    expected = ours.tokenize(texts).to_tensor(-1)
    np.testing.assert_array_equal(
        tf.saved_model.load(tmp_path / "saved").tokenize(tf.constant(texts)), expected
    )
    assert ours.tokenize([]).shape[0] == 0


def test_folders_come_and_go(ours, theirs, tmp_path):
    ours.save_huggingface(tmp_path)
    again = read_huggingface_tokenizer(tmp_path)
    assert type(again) is CLIPTokenizer and again.content == ours.content
    special = read_huggingface_special_tokens(tmp_path, again)
    assert special == ([ours.start_id], [ours.end_id])
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    row = library.encode("A photo").ids
    assert row == [ours.start_id, *theirs.encode("a photo").ids, ours.end_id]
    # The older files, with a pad token that is an object.
    old = tmp_path / "old"
    old.mkdir()
    (old / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(ours.tokens)}))
    (old / "merges.txt").write_text("\n".join(["#version: 0.2", *ours.content["merges"], ""]), "utf-8")
    (old / "special_tokens_map.json").write_text('{"pad_token": {"content": "<|startoftext|>"}}')
    again = read_huggingface_tokenizer(old)
    assert type(again) is CLIPTokenizer and again.pad_id == ours.start_id
    assert_same(again, theirs, ODD)
    assert read_huggingface_special_tokens(old, again) == special


def test_other_rules_and_files_are_refused(ours, tmp_path):
    ours.save_huggingface(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    for change, named in (
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}, "normalizer: expected"),
        ({"normalizer": None}, "no tokenizer of CLIP's kind"),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, "no tokenizer of CLIP's kind"),
        (
            {"model": content["model"] | {"vocab": {"a": 0}}, "added_tokens": []},
            "expected every byte, alone and with",
        ),
        ({"added_tokens": [{"content": "<|startoftext|>", "id": 9_000}]}, "with the ids 0, 1"),
    ):
        path.write_text(json.dumps(content | change))
        with pytest.raises(DataError, match=rf"tokenizer\.json.*{named}"):
            read_huggingface_tokenizer(tmp_path)
    path.unlink()
    (tmp_path / "tokenizer.clip.json").write_text('{"tokens": ["a"], "merges": []}')
    with pytest.raises(DataError, match=r"tokenizer\.clip\.json: tokens: expected different ones"):
        load_tokenizer(tmp_path)


def test_impossible_vocabularies_are_refused(ours):
    with pytest.raises(ValueError, match="must be at least 514; it is 513"):
        CLIPTokenizer.train(["a"], 513)
    assert CLIPTokenizer.train(["a b"], 514).vocabulary_size == 514
    with pytest.raises(ValueError, match="expected different ones"):
        CLIPTokenizer([*ours.tokens, "a"], [])
    with pytest.raises(ValueError, match="expected a merge that gives 'zzz', got none"):
        CLIPTokenizer([*ours.tokens, "zzz"], ours.content["merges"])
    with pytest.raises(ValueError, match=r"among them .*, <pad>"):
        CLIPTokenizer(ours.tokens, ours.content["merges"], pad="<pad>")
