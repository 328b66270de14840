"""Byte-level tokenizers that split as Llama 3's, Qwen2's and Mistral's, against `tokenizers`."""

import json
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import (
    ByteLevelTokenizer,
    DataError,
    load_tokenizer,
    read_huggingface_tokenizer,
    to_keras_hub,
)
from keras_tfm.data.tokenizers.huggingface import read_huggingface_special_tokens
from keras_tfm.data.tokenizers.splitting import RULES, Rules
from keras_tfm.serving.tokens import by_tokenizers, spans_by_tokenizers
from keras_tfm.tasks.text.text_signature import tokenizer_reads
from tests.data.tokenizers.characters import assert_every_character_is_read_alike
from tests.data.tokenizers.chats import NAMES, STARTS, all_merges, learnt, pre_tokenizer, write_folder

PIECES = [
    "'s", "'S", "'ſ", "'LL", "'re", "'Ve", "'d", "'T", "'", " ", "  ", "     ", "\n", "\r\n", "\r", "\n\n",
    "\t", "\u00a0", "\u3000", "\u2028", "\v", "\x85", "\x1c", "\0", "a", "Hello", "world", "é", "e\u0301",
    "\u0301", "A\u030a", "가", "\u1100\u1161", "1", "12", "1234567", "²½Ⅳ٣४", "日本語", "नमस्ते", "Ελλ",
    "Привет", "שלום", "👩‍👩‍👧", "🙂", "...", "-=", "--", "==", "_", "$", "\u200d", "ŉ", "ﬆ", "ſ", " unmerged",
    "zzq", "qz", "aaaa", *(name for names in NAMES.values() for name in names),
    "<think>", "é!", "e\u0301!", "<|", "\u0378",
    "\ufffd", "hELLo", "ǅ", "ʰ", "CamelCASE", "\u0301B", "/", "//\n",
    "\u0897", "\ua7cd", "\u1c89",
    "\U00010d4b", "\U00011bf3", "\U0002ec00",  # the last six are new in Unicode 16
]  # fmt: skip
MARKS = "\U0010fffe\U0010ffff"


@pytest.fixture(scope="module", params=[*NAMES])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    return tmp_path_factory.mktemp(kind)


@pytest.fixture(scope="module")
def theirs(kind, folder):
    return write_folder(kind, folder)


@pytest.fixture(scope="module")
def ours(theirs, folder):
    return read_huggingface_tokenizer(folder)


def assert_same(ours, theirs, texts):
    expected = theirs.encode_batch(texts, add_special_tokens=False)
    for text, row, encoding in zip(texts, ours.tokenize(texts).to_list(), expected, strict=True):
        assert row == encoding.ids, (text, [ours.tokens[i] for i in row], encoding.tokens)


def drawn(count, pieces=PIECES, seed=0):
    draw = random.Random(seed)
    return ["".join(draw.choices(pieces, k=draw.randrange(14))) for _ in range(count)]


def test_drawn_pieces(ours, theirs):
    assert_same(ours, theirs, drawn(4_000))


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters=MARKS), max_size=30), min_size=1, max_size=5
    )
)
def test_any_text(ours, theirs, texts):
    assert_same(ours, theirs, texts)


def test_runs_are_merged_alike(ours, theirs):
    """Where several merges overlap, it matters which comes first."""
    for number, characters in enumerate((" a", "-=", " \t\n.", "ab", ["aa", "a", "\n"])):
        assert_same(ours, theirs, drawn(400, characters, number))


def test_every_assigned_character_is_split_alike(ours, theirs):
    assert_every_character_is_read_alike(ours, theirs)
    # Python 3.11 does not know what Unicode 16 added.
    later = [chr(i) for i in range(0x32000) if unicodedata.category(chr(i)) == "Cn"]
    texts = [f"a{c}b {c}1{c}  {c}." for c in later[::7]]
    assert_same(ours, theirs, texts)


def test_any_vocabulary_with_all_its_merges():
    """Llama 3's list has all merges that give a token; a word may be a token that they do not give."""
    draw = random.Random(0)
    for ignore_merges in (False, True):
        base, _ = learnt("llama3")
        tokens = [token for token in base if len(token) == 1]
        tokens += dict.fromkeys("".join(draw.choices("abc", k=draw.randrange(2, 7))) for _ in range(60))
        ids = {token: i for i, token in enumerate(tokens)}
        merges = all_merges(ids)
        theirs = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges, ignore_merges=ignore_merges))
        theirs.pre_tokenizer = pre_tokenizer("llama3")
        added = [{"id": len(tokens), "content": "<end>", "special": True}]
        rules = {"split": "llama3", "ignore_merges": ignore_merges}
        lines = [" ".join(pair) for pair in merges]
        ours = ByteLevelTokenizer(tokens, lines, added, roles={"end": "<end>"}, rules=rules)
        assert_same(ours, theirs, drawn(2_000, ["a", "b", "c", "ab", "ca", " "]))


def test_texts_come_back_without_special_tokens(ours, theirs, kind):
    texts = [text for text in drawn(300) if text == unicodedata.normalize("NFC", text) and "é!" not in text]
    decoded = [text.decode() for text in ours.detokenize(ours.tokenize(texts)).numpy()]
    end = OPTION_END[kind]
    for text, row, again in zip(texts, ours.tokenize(texts).to_list(), decoded, strict=True):
        row = row[: row.index(ours.end_id)] if ours.end_id in row else row
        assert again == theirs.decode(row, skip_special_tokens=True)
        assert again == text or any(name in text for name in (*NAMES[kind], end))


OPTION_END = {"llama3": "<|eot_id|>", "qwen2": "<|im_end|>", "tekken": "</s>"}


def test_roles_and_what_stands_around_a_text(ours, theirs, kind, folder):
    assert ours.tokens[ours.end_id] == OPTION_END[kind]
    around = read_huggingface_special_tokens(folder, ours)
    first = [ours.start_id] if kind in STARTS else []
    assert around == (first, []) and theirs.encode("a").ids[:-1] == first
    pad = "<|endoftext|>" if kind == "qwen2" else OPTION_END[kind]
    assert ours.tokens[ours.pad_id] == pad
    special = {ours.tokens[i] for i in ours.silent_ids}
    assert special == {*NAMES[kind]}


def test_offsets_are_the_librarys(ours, folder):
    texts = [text for text in drawn(600) if not any(x in text for x in [*ours.ordinary, "\0"])]
    spans = spans_by_tokenizers(folder, ordinary=False)(texts)
    for text, row, starts, ends, (ids, expected) in zip(
        texts, *(x.to_list() for x in ours.tokenize_with_offsets(texts)), spans, strict=True
    ):
        begins = np.cumsum([0, *(len(x.encode()) for x in text)])
        assert row == ids, text
        if text == unicodedata.normalize("NFC", text):
            assert [(begins[first], begins[last]) for first, last in expected] == [
                *zip(starts, ends, strict=True)
            ], text
        assert {*starts, *ends} <= {*begins.tolist()}


def test_folders_runs_and_hosts_keep_the_tokenizer(ours, theirs, folder, tmp_path):
    texts = drawn(500)
    expected = ours.tokenize(texts).to_list()
    ours.save(tmp_path)
    assert load_tokenizer(tmp_path).content == ours.content
    assert load_tokenizer(tmp_path).tokenize(texts).to_list() == expected
    ours.save_huggingface(tmp_path, add_start=ours.start_id != ours.end_id)
    back = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [x.ids for x in back.encode_batch(texts)] == [x.ids for x in theirs.encode_batch(texts)]
    reads = tokenizer_reads(ours)
    assert by_tokenizers(tmp_path, reads["ordinary"])(texts) == expected
    (tmp_path / "tokenizer.bytes.json").unlink()
    again = read_huggingface_tokenizer(tmp_path)
    assert again.content == ours.content and again.added == ours.added


def test_a_saved_model_reads_alike(ours, tmp_path):
    module = tf.Module()
    module.tokenizer = ours
    module.tokenize = tf.function(
        lambda text: module.tokenizer.tokenize(text).to_tensor(-1),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    tf.saved_model.save(module, tmp_path / "saved")
    texts = drawn(200)
    loaded = tf.saved_model.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.tokenize(tf.constant(texts)), ours.tokenize(texts).to_tensor(-1))
    assert loaded.tokenize(tf.constant([], tf.string)).shape[0] == 0


def test_qwen2s_files_without_tokenizer_json(tmp_path):
    vocabulary, merges = learnt("qwen2")
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    lines = ["#version: 0.2", *map(" ".join, merges)]
    (tmp_path / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    ours = read_huggingface_tokenizer(tmp_path)
    assert ours.content["rules"] == {"split": "qwen2", "normalizer": "NFC"}
    assert ours.tokens[ours.end_id] == "<|endoftext|>" and ours.end_id == len(vocabulary)


def test_the_class_or_the_file_says_the_rules(tmp_path):
    write_folder("qwen2", tmp_path, tokenizer_class="LlamaTokenizerFast")
    assert read_huggingface_tokenizer(tmp_path).content["rules"]["split"] == "qwen2"
    write_folder("llama3", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    with pytest.raises(DataError, match=r"expected the rules of its class, .*'qwen2'.*got .*'llama3'"):
        read_huggingface_tokenizer(tmp_path)
    (tmp_path / "config.json").unlink()
    write_folder("llama3", tmp_path, tokenizer_class="GPT2Tokenizer")
    with pytest.raises(DataError, match=r"expected the rules of its class, \{\}, got"):
        read_huggingface_tokenizer(tmp_path)
    write_folder("tekken", tmp_path, tokenizer_class="GPT2TokenizerFast")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mistral"}))  # takes the file as it is
    assert read_huggingface_tokenizer(tmp_path).content["rules"]["split"] == "tekken"


def test_the_end_may_stand_in_other_files(tmp_path):
    whole = write_folder("llama3", tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(DataError, match="eos_token: expected what ends a text"):
        read_huggingface_tokenizer(tmp_path)
    ids = [whole.token_to_id(name) for name in ("<|eot_id|>", "<|end_of_text|>")]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    ours = read_huggingface_tokenizer(tmp_path)
    assert (ours.end_id, ours.start_id) == (ids[0], whole.token_to_id("<|begin_of_text|>"))


SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+|\w+"}, "behavior": "Isolated", "invert": False}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
KNOWN = SPLIT | {"pattern": {"Regex": RULES["llama3"].pattern}}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": [*parts]}


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (
            "pre_tokenizer",
            sequence(SPLIT, BYTES),
            r"pattern: expected one of gpt2, qwen2, llama3, tekken, got .*\\w",
        ),
        ("pre_tokenizer", sequence({"type": "Digits"}, BYTES), "got BPE of Digits and ByteLevel"),
        ("pre_tokenizer", sequence(KNOWN | {"behavior": "Removed"}, BYTES), "behavior and invert: expected"),
        ("pre_tokenizer", sequence(KNOWN, BYTES | {"use_regex": True}), "use_regex: expected none"),
        (
            "pre_tokenizer",
            sequence(KNOWN, BYTES | {"add_prefix_space": True}),
            "add_prefix_space: expected none",
        ),
        ("normalizer", {"type": "NFKC"}, "normalizer: expected none or NFC, got {'type': 'NFKC'}"),
        ("model", {"byte_fallback": True}, "byte_fallback: expected none, got True"),
    ],
)
def test_other_rules_are_refused_by_name(part, change, message, tmp_path):
    write_folder("llama3", tmp_path)
    stated = json.loads((tmp_path / "tokenizer.json").read_text())
    changed = change if part != "model" else stated[part] | change
    (tmp_path / "tokenizer.json").write_text(json.dumps(stated | {part: changed}))
    with pytest.raises(DataError, match=message):
        read_huggingface_tokenizer(tmp_path)


def test_what_the_rules_do_not_allow(ours):
    with pytest.raises(ValueError, match="prefix_space: expected False for texts split as"):
        ours.with_prefix_space()
    with pytest.raises(TypeError, match="KerasHub splits by GPT-2's rules"):
        to_keras_hub(ours)
    content = ours.content
    with pytest.raises(ValueError, match="roles: expected end"):
        ByteLevelTokenizer(**content | {"roles": {"pad": "<think>"}})
    with pytest.raises(ValueError, match="roles: expected added tokens, got 'a'"):
        ByteLevelTokenizer(**content | {"roles": {"end": "a"}})
    with pytest.raises(ValueError, match="expected '<x>', which has a role"):
        ByteLevelTokenizer(**content | {"roles": {"end": "<x>"}})
    for entries in ({"split": "words"}, {"split": "qwen2", "normalizer": "NFD"}, {"normalizer": "NFC"}):
        with pytest.raises(ValueError, match="expected"):
            Rules.of(entries)
