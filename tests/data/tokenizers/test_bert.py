"""BERT's tokenizer against the `tokenizers` library: every assigned character, real text, drawn Unicode."""

import json
import pydoc_data.topics
import re
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import BERTTokenizer, DataError, load_tokenizer
from keras_tfm.training.safetensors import CheckpointError

tokenizers = pytest.importorskip("tokenizers")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LINES = [line for topic in pydoc_data.topics.topics.values() for line in topic.splitlines() if line.strip()]
CHARACTERS = sorted({c.lower() for line in LINES for c in line if c != " "} | set("éöñ漢字я’“—"))


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def pair(request, tmp_path_factory):
    """Ours and, out of the file that ours saves, theirs."""
    words = sorted({word for line in LINES for word in re.findall(r"[a-zA-Z]{2,5}", line)})
    characters = sorted({*CHARACTERS, *(c for line in LINES for c in line if c != " ")})
    pieces = [*characters, *words]
    ours = BERTTokenizer([*SPECIAL, *pieces, *(f"##{piece}" for piece in pieces)], lowercase=request.param)
    path = ours.save(tmp_path_factory.mktemp("tokenizer"))
    return ours, tokenizers.Tokenizer.from_file(str(path))


def assert_same(pair, texts):
    ours, theirs = pair
    actual = ours.tokenize(texts).to_list()
    for text, ids, expected in zip(
        texts, actual, theirs.encode_batch(texts, add_special_tokens=False), strict=True
    ):
        assert ids == expected.ids, text


def test_real_text(pair):
    assert len(LINES) > 8_000
    assert_same(pair, LINES)


def test_hand_picked_text(pair):
    spaces = ["", " ", "\t\n", "a\u00a0b\u3000c", "a\x00b\x0bc\ufffdd\u200be"]
    words = ["naïve ÉCOLE ǅ İstanbul ß", "漢字かなa", "don't—“stop”…", "ﬁ ½ ²", "e\u0301 x\u0327\u0301"]
    lengths = ["x" * 100, "x" * 101, "é" * 100 + " " + "é" * 101]
    special = ["fill [MASK] in", "[CLS][SEP] [mask] [MASK", "[UNK]"]
    rare = ["\U0010fff0 \U0010fff4", "\U00030001 \U000e0041"]
    assert_same(pair, spaces + words + lengths + special + rare)


def test_every_assigned_character(pair):
    """What differs is listed by kind and counted: characters younger than their tables, 507 at most."""
    ours, theirs = pair
    points = [i for i in range(0x110000) if unicodedata.category(chr(i)) not in ("Cn", "Cs")]
    texts = [f"a{chr(i)}b" for i in points]
    words = [text.decode().split() for text in ours.normalize(texts).numpy()]
    different = []
    for point, text, actual in zip(points, texts, words, strict=True):
        normal = theirs.normalizer.normalize_str(text)
        if actual != [word for word, _ in theirs.pre_tokenizer.pre_tokenize_str(normal)]:
            different.append(point)
    assert len(points) > 280_000 and len(different) < 520
    assert all(point > 0x61C for point in different)
    kinds = {unicodedata.category(chr(point)) for point in different}
    assert kinds <= {"Mn", "Mc", "Po", "Ps", "Pe", "Pd", "Pi", "Pf", "Cf", "So"}


def test_characters_that_are_not_assigned_yet(pair):
    """They are parts of words; tags, and the planes for private use, are left out; an accent is an accent."""
    ours, theirs = pair
    points = [*range(0x323B0, 0xF0000, 97), *range(0xE0000, 0xE0200), *range(0xF0000, 0x10FFFE, 997)]
    texts = [f"a{chr(i)}b" for i in points]
    found = [text.decode() for text in ours.normalize(texts).numpy()]
    different = [hex(i) for i, text, x in zip(points, texts, found, strict=True)
                 if x != theirs.normalizer.normalize_str(text)]  # fmt: skip
    assert different == []
    assert_same(pair, ["a\U00033479 \U00033479", "the\U000e0100", "漢\U000e0101字", "a\U000effffb"])


# Up to Unicode 7, which their tables know: no character beyond the older blocks.
OLD = st.characters(exclude_categories=("Cs", "Cn"), max_codepoint=0x61C)
PIECES = st.one_of(OLD, st.sampled_from([*CHARACTERS, " ", "the", "\U0001f600", "\U0010fff0", "[MASK]"]))
ANY = st.lists(PIECES, max_size=20).map("".join)


@given(st.lists(ANY, min_size=1, max_size=5))
def test_drawn_text(pair, texts):
    assert_same(pair, texts)


def test_malformed_bytes_are_left_out(pair):
    ours, _ = pair
    assert ours.tokenize([b"a\xff\xfeb \xe2\x82"]).to_list() == ours.tokenize(["ab"]).to_list()


def test_detokenize(pair):
    ours, _ = pair
    ids = ours.tokenize(["the compiler's [MASK]", ""])
    rows = tf.concat([[[ours.start_id]] * 2, ids, [[ours.end_id]] * 2], axis=1)
    assert ours.detokenize(rows).numpy().tolist() == [b"the compiler ' s [MASK]", b""]


def test_round_trip_and_export(pair, tmp_path):
    ours, _ = pair
    ours.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.vocabulary == ours.vocabulary and again.lowercase == ours.lowercase
    module = tf.Module()
    module.tokenizer = ours
    module.tokenize = tf.function(
        lambda x: ours.tokenize(x).to_tensor(), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    texts = ["A real [MASK], with Marks!", "ö"]
    assert loaded.tokenize(texts).numpy().tolist() == ours.tokenize(texts).to_tensor().numpy().tolist()


def test_a_folder_of_vocab_txt(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "A", "a", "##b"]) + "\n")
    assert BERTTokenizer.from_huggingface(tmp_path).tokenize(["Ab"]).to_list() == [[6, 7]]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert BERTTokenizer.from_huggingface(tmp_path).tokenize(["Ab"]).to_list() == [[5, 7]]
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"expected pieces, each once, with \[PAD\]"):
        BERTTokenizer.from_huggingface(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(DataError, match=r"expected tokenizer.json or vocab.txt, got neither"):
        BERTTokenizer.from_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("model", {"type": "BPE"}, "model type: expected 'WordPiece', got 'BPE'"),
        ("model", {"vocab": {"[PAD]": 0, "a": 0}}, "vocab: expected the ids 0, 1"),
        ("model", {"vocab": {"a": 0}}, "expected pieces, each once"),
        ("normalizer", {"type": "Lowercase"}, "normalizer: expected 'BertNormalizer'"),
        ("pre_tokenizer", None, "pre-tokenizer: expected 'BertPreTokenizer', got None"),
    ],
)
def test_other_tokenizers_are_refused(part, value, message, tmp_path):
    path = BERTTokenizer([*SPECIAL, "a"]).save(tmp_path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {part: value and content[part] | value}))
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path)
    path.write_text("{")
    with pytest.raises(CheckpointError, match="expected JSON"):
        load_tokenizer(tmp_path)
