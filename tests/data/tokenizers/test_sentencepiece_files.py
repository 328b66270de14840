"""Published SentencePiece models against the `tokenizers` library and SentencePiece itself, piece by piece.

Each family's folder is made here, of a model trained as theirs were; its tokenizer.json is put together as
transformers' converters do.
"""

import io
import json
import pydoc_data.topics
import re
import unicodedata

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from keras_tfm.data import DataError, SentencePieceTokenizer, load_tokenizer
from keras_tfm.data.batches.encoding import pack_texts
from keras_tfm.data.tokenizers.huggingface import (
    read_huggingface_special_tokens,
    read_huggingface_tokenizer,
    refuse_other_pairs,
)
from keras_tfm.serving.answers import answer_of
from keras_tfm.serving.tokens import by_tokenizers
from keras_tfm.tasks.asking import answerer_of
from keras_tfm.tasks.text.text_signature import text_signature
from keras_tfm.tasks.text.writing import answers_of, write_symbols
from keras_tfm.training.safetensors import CheckpointError

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import normalizers, pre_tokenizers  # noqa: E402

LINES = [line for topic in pydoc_data.topics.topics.values() for line in topic.splitlines() if line.strip()]
SPECIAL = {
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "pad_piece": "<pad>"},
    "albert": {
        "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
    },
    "deberta": {
        "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3,
        "pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]",
    },
    "mbart": {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1},
}  # fmt: skip
FILES = {
    "t5": "spiece.model",
    "albert": "spiece.model",
    "deberta": "spm.model",
    "mbart": "sentencepiece.bpe.model",
}
MASKS = {"t5": "<extra_id_7>", "albert": "[MASK]", "deberta": "[MASK]", "mbart": "<mask>"}


def trained(family, more=()):
    """A model as the family's was trained, on lower-cased text for ALBERT, with pieces such as "1,"."""
    lines = [line.lower() for line in LINES] if family == "albert" else LINES
    lines = [*lines, *["in 1, 2, 31, and 100, or 2,", "naïve café Ünï 漢字 カタカナ ｶﾞ ½ ﬁ"] * 40, *more]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=800, minloglevel=2, num_threads=1,
        hard_vocab_limit=False, **SPECIAL[family],
    )  # fmt: skip
    return model.getvalue()


def reference(family, model):
    """The tokenizer of `tokenizers` that transformers' converter makes of `model` (5.23)."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    charsmap = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    spaces = [normalizers.Strip(left=False, right=True), normalizers.Replace(tokenizers.Regex(" {2,}"), "▁")]
    rules, unknown, special = [charsmap, *spaces], proto.trainer_spec.unk_id, []
    if family == "t5":
        special = [f"<extra_id_{i}>" for i in reversed(range(100))]
        pieces += [(name, 0.0) for name in special]
    elif family == "deberta":
        special = ["[MASK]"]
        pieces.append(("[MASK]", 0.0))
        rules = [normalizers.Strip(), charsmap, normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    elif family == "albert":
        pieces = [(p, s - 100 * bool(re.search(r"\d,$", p))) for p, s in pieces]
        rules = [
            normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
            normalizers.StripAccents(), normalizers.Lowercase(), charsmap,
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]  # fmt: skip
    else:
        head = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
        special = ["ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN",
                   "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO",
                   "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN", "<mask>"]  # fmt: skip
        pieces = head + pieces[3:] + [(name, 0.0) for name in special]
        unknown = 3
    theirs = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unknown, False))
    control = [p.piece for p in proto.pieces if p.type in (2, 3)]  # unknown and control
    names = [*special, *control, *(["<pad>"] if family == "mbart" else [])]
    theirs.add_special_tokens([tokenizers.AddedToken(name, normalized=False) for name in names])
    theirs.normalizer = normalizers.Sequence(rules)
    theirs.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    return theirs


# Each trains a model: ALBERT's, whose text is normalised in the most ways, at each push.
@pytest.fixture(
    scope="module",
    params=[x if x == "albert" else pytest.param(x, marks=pytest.mark.slow) for x in FILES],
)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory):
    path = tmp_path_factory.mktemp(family)
    (path / FILES[family]).write_bytes(trained(family))
    if family == "mbart":
        (path / "config.json").write_text('{"model_type": "mbart"}')
    return path


@pytest.fixture(scope="module")
def pair(family, folder):
    """Ours and theirs."""
    theirs = reference(family, (folder / FILES[family]).read_bytes())
    return SentencePieceTokenizer.from_huggingface(folder), theirs


def is_same(row, expected):
    """Equal, but for the order of pieces whose scores tie: "*" * 9 as 4 + 5 or as 5 + 4."""
    return row == expected or sorted(row) == sorted(expected)


def differing(pair, texts):
    """(text, ours, theirs) where they differ."""
    ours, theirs = pair
    rows = zip(texts, ours.tokenize(texts).to_list(), theirs.encode_batch(texts), strict=True)
    return [(text, row, expected.ids) for text, row, expected in rows if not is_same(row, expected.ids)]


def test_roles(pair, family):
    ours, theirs = pair
    names = {
        "t5": ("<pad>", "<pad>", "</s>", "<unk>"),
        "albert": ("<pad>", "[CLS]", "[SEP]", "<unk>"),
        "deberta": ("[PAD]", "[CLS]", "[SEP]", "[UNK]"),
        "mbart": ("<pad>", "<s>", "</s>", "<unk>"),
    }[family]
    ids = (ours.pad_id, ours.start_id, ours.end_id, ours.unknown_id)
    assert ids == tuple(map(theirs.token_to_id, names))
    assert ours.vocabulary_size == theirs.get_vocab_size()
    assert ours.mask_id == (None if family == "t5" else theirs.token_to_id(MASKS[family]))
    sentinels = [theirs.token_to_id(f"<extra_id_{i}>") for i in range(100)] if family == "t5" else []
    assert list(ours.sentinel_ids) == sentinels


def test_real_text(pair):
    assert len(LINES) > 8_000
    different = differing(pair, [line.strip() for line in LINES])
    assert not different


def test_hand_picked_text(pair, family):
    mask = MASKS[family]
    spaces = ["", "  a  b", "a\tb\nc", "a\u00a0b\u3000c", "\u200ba\x00b\x7f", "▁a ▁b", " \u3000 a"]
    marks = ["``quoted''", "1, 2,000, x1,", "e\u0301 É ﬁ ½ ²", "漢字", "\U0001f600 한국어", "İ ǅ ẞ Σ"]
    special = [f"fill{mask} in", f"{mask}{mask}", f"{mask} x{mask}y", "<unk></s>", "[CLS] a[SEP]", mask[:-1]]
    different = differing(pair, spaces + marks + special)
    assert not different
    more = [" ", "a ", f"fill {mask} in", "<unk> </s>"]
    assert bool(differing(pair, more)) == (
        family == "albert"
    )  # its converter strips nothing, its authors did


def test_every_assigned_character(pair, family):
    """Between letters. What differs is counted: marks younger than the library's tables."""
    points = [i for i in range(1, 0x110000) if unicodedata.category(chr(i)) not in ("Cn", "Cs", "Co")]
    different = [text[1] for text, *_ in differing(pair, [f"a{chr(i)}b" for i in points])]
    assert len(points) > 140_000
    assert len(different) <= (330 if family == "albert" else 0)
    assert {unicodedata.category(character) for character in different} <= {"Mn", "Mc", "Lm", "Lo", "So"}


@pytest.fixture(scope="module")
def processor(folder, family):
    return sentencepiece.SentencePieceProcessor(model_proto=(folder / FILES[family]).read_bytes())


def assert_sentencepieces(pair, family, processor, texts):
    """Ours are the ids of SentencePiece itself, on texts without special tokens."""
    offset = int(family == "mbart")
    for text, row in zip(texts, pair[0].tokenize(texts).to_list(), strict=True):
        expected = [i + offset for i in processor.encode(text)]
        expected = [pair[0].unknown_id if i == processor.unk_id() + offset else i for i in expected]
        assert is_same(row, expected), text


ANY = st.lists(st.one_of(st.characters(exclude_categories=("Cs", "Cn")), st.sampled_from(" ▁aeé1,.the"))).map(
    "".join
)


@given(texts=st.lists(ANY, min_size=1, max_size=5))
def test_drawn_text_against_sentencepiece(pair, family, processor, texts):
    if family == "albert":  # what its rules make of a text comes to SentencePiece
        texts = [albert_rules(text) for text in texts]
    texts = [text for text in texts if "\0" not in text]
    assert_sentencepieces(pair, family, processor, texts or ["a"])


def albert_rules(text):
    """As in the authors' code, but for "``" and digits before commas."""
    text = "".join(
        x for x in unicodedata.normalize("NFKD", text) if not unicodedata.category(x).startswith("M")
    )
    return text.lower().replace("`", "").replace("'", "").replace(",", "")


# SentencePiece keeps a next line, U+0085, at a text's ends; `tokenizers` strips it there, with all spaces.
NO_TEXT = "\0\x85"


@given(
    text=st.text(
        st.characters(max_codepoint=0x2FF, exclude_categories=("Cs", "Cn"), exclude_characters=NO_TEXT)
    )
)
def test_drawn_text_against_tokenizers(pair, text):
    different = differing(pair, [f"{text}."])
    assert not different


def test_a_next_line_at_the_ends_stays_as_sentencepiece_has_it(pair, family, processor):
    assert_sentencepieces(pair, family, processor, ["\x85a", "a\x85", "\x85", "a\x85b"])
    assert bool(differing(pair, ["\x85a"])) == (family == "deberta")
    assert not differing(pair, ["a\x85b"])


def test_detokenize(pair, family):
    ours, _ = pair
    rows = ours.tokenize(["the compiler, and  more", f"a {MASKS[family]} b", "\U0001f600"])
    rows = tf.concat([rows, tf.fill([3, 1], ours.end_id), rows], axis=1)
    unknown = "⁇"
    texts = [text.decode() for text in ours.detokenize(rows).numpy()]
    assert texts == ["the compiler, and more", f"a{MASKS[family]} b", f" {unknown} "]


def test_spaces_before_punctuation_are_removed_where_a_folder_says_so(folder, tmp_path):
    """By `detokenize`, and by the host of an export; in a RUN and in a folder, too."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    options = tmp_path / "tokenizer_config.json"
    options.write_text('{"clean_up_tokenization_spaces": true}')
    ours = read_huggingface_tokenizer(tmp_path)
    texts = ["it is n't so , he 's there . . what ' a ' !", "they 're 'm 've", ". a"]
    expected = ["it isn't so, he's there.. what'a '!", "they're'm've", ". a"]
    rows = ours.tokenize(texts)
    assert [text.decode() for text in ours.detokenize(rows).numpy()] == expected
    folders = tmp_path / "run", tmp_path / "hf"
    for path in folders:
        path.mkdir()
    ours.save(folders[0])
    ours.save_huggingface(folders[1])
    write_symbols(ours, folders[0])
    answers = answers_of(ours)
    written = answer_of(folders[0], json.loads(json.dumps(answers)))
    assert [written([{"ids": row}], [None], "")["text"] for row in rows.to_list()] == expected
    for again in (load_tokenizer(folders[0]), read_huggingface_tokenizer(folders[1])):
        assert again.replaced == ours.replaced
        assert [text.decode() for text in again.detokenize(rows).numpy()] == expected
    options.write_text('{"clean_up_tokenization_spaces": "no"}')
    with pytest.raises(DataError, match="clean_up_tokenization_spaces"):
        read_huggingface_tokenizer(tmp_path)
    options.write_text('{"clean_up_tokenization_spaces": false}')
    assert read_huggingface_tokenizer(tmp_path).replaced == () and "replaced" in answers


def test_kept_and_exported(pair, tmp_path):
    ours, _ = pair
    ours.save(tmp_path)
    texts = ["A real line, with Marks!", "ö [MASK] <extra_id_3>"]
    assert load_tokenizer(tmp_path).tokenize(texts).to_list() == ours.tokenize(texts).to_list()
    module = tf.Module()
    module.tokenizer = ours
    module.tokenize = tf.function(
        lambda x: ours.tokenize(x).to_tensor(-1), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_array_equal(loaded.tokenize(tf.constant(texts)), ours.tokenize(texts).to_tensor(-1))


# tokenizer.json


def write_json(theirs, folder, **changes):
    content = json.loads(theirs.to_str()) | changes
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def test_it_is_written_as_tokenizer_json(pair, family, tmp_path):
    ours, _ = pair
    ours.save_huggingface(tmp_path)
    theirs, again = (
        tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")),
        read_huggingface_tokenizer(tmp_path),
    )
    assert again.special_ids == ours.special_ids and again.vocabulary_size == ours.vocabulary_size
    mask = MASKS[family]
    texts = [
        *LINES,
        f"fill {mask} in",
        f"{mask}x {mask} y",
        "  a  b ",
        "1, 2,000 ``x'' \u00c9 \ufb01 \u6f22",
        "",
    ]
    rows = [encoding.ids for encoding in theirs.encode_batch(texts, add_special_tokens=False)]
    found = zip(texts, rows, ours.tokenize(texts).to_list(), again.tokenize(texts).to_list(), strict=True)
    assert not [x for x in found if not is_same(x[1], x[2]) or not is_same(x[1], x[3])]
    around = read_huggingface_special_tokens(tmp_path, again)
    assert list(around.prefix) == ([ours.start_id] if family in ("albert", "deberta") else [])
    assert list(around.suffix) == [ours.end_id]
    one, two = ours.tokenize(["a house", "a tree"]).to_list()
    behind = [*around.suffix]
    whole = theirs.encode("a house", "a tree")
    assert whole.ids == [*around.prefix, *one, *behind, *two, *behind]
    expected = [0] * (len(around.prefix) + len(one) + 1)
    assert whole.type_ids[: len(expected)] == expected
    assert set(whole.type_ids[len(expected) :]) == {int(family in ("albert", "deberta"))}
    assert theirs.decode(one) == "a house"
    options = json.loads((tmp_path / "tokenizer_config.json").read_text())
    roles = {name for role, name in options.items() if role.endswith("_token")}
    named = {theirs.id_to_token(i) for i in ours.special_ids} - {theirs.id_to_token(ours.unknown_id)}
    assert named <= roles | set(options["extra_special_tokens"])


def test_a_folder_of_tokenizer_json_alone(pair, tmp_path):
    ours, theirs = pair
    other = SentencePieceTokenizer.from_huggingface(write_json(theirs, tmp_path))
    assert other.special_ids == ours.special_ids and other.sentinel_ids == ours.sentinel_ids
    assert (other.pad_id, other.start_id, other.end_id, other.unknown_id, other.mask_id) == (
        ours.pad_id, ours.start_id, ours.end_id, ours.unknown_id, ours.mask_id,
    )  # fmt: skip
    assert other.tokenize(LINES).to_list() == ours.tokenize(LINES).to_list()
    points = [i for i in range(1, 0x3000) if unicodedata.category(chr(i)) not in ("Cn", "Cs", "Co")]
    texts = [f"a{chr(i)}b" for i in points]
    assert other.tokenize(texts).to_list() == ours.tokenize(texts).to_list()


def test_a_composing_normalizer(tmp_path):
    """NFC and the spaces of transformers' own DeBERTa tokenizer, without a table."""
    pieces = [("[PAD]", 0.0), ("[UNK]", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0)]
    pieces += [(piece, -1.0 - i / 100) for i, piece in enumerate(["▁", "a", "é", "▁é", "ガ", "が", "ậ"])]
    theirs = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 1, False))
    theirs.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    theirs.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " "),
            normalizers.NFC(),
            normalizers.Strip(left=False, right=True),
        ]
    )
    theirs.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace("▁", "always")])
    ours = SentencePieceTokenizer.from_huggingface(write_json(theirs, tmp_path))
    texts = ["e\u0301a é", "a\ta\n a", "カ\u3099か\u3099", "a\u0323\u0302 \u1ead", "[MASK] é[CLS]"]
    different = differing((ours, theirs), texts)
    assert not different


def test_where_graphs_and_hosts_differ_an_export_says_so(pair, processor, family, tmp_path):
    """`in_graphs` stands in the README of a SavedModel; the graph reads as SentencePiece."""
    ours, _ = pair
    ours.save_huggingface(tmp_path)
    ids = by_tokenizers(tmp_path)
    texts = ["a\x85", "x\u00bd\u200d y", "\u00bd\ufe0f\u200d"]
    rows = zip(texts, ids(texts), ours.tokenize(texts).to_list(), strict=True)
    differ = [text for text, theirs, row in rows if theirs != row]
    assert differ == texts[:2] and "U+0085" in ours.in_graphs and "joiner" in ours.in_graphs
    texts = [albert_rules(text) for text in texts] if family == "albert" else texts
    assert_sentencepieces(pair, family, processor, texts)
    assert SentencePieceTokenizer.train(LINES[:99], 300).in_graphs == ""


# Two texts


@pytest.fixture(scope="module")
def xlm_roberta(tmp_path_factory):
    """XLM-RoBERTa's folder, whose class joins texts by a rule of its own, and theirs of the same pieces."""
    folder = tmp_path_factory.mktemp("xlm-roberta")
    model = trained("mbart")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    head = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = [*head, *((x.piece, x.score) for x in proto.pieces[3:]), ("<mask>", 0.0)]
    theirs = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 3, False))
    theirs.add_special_tokens([name for name, _ in (*head, pieces[-1])])
    theirs.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    theirs.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return folder, theirs


def test_two_ends_stand_between_the_texts_of_xlm_roberta(xlm_roberta, tmp_path):
    """On the host, in a graph and in a SavedModel; of the class, of tokenizer.json, as written and kept."""
    folder, theirs = xlm_roberta
    ours = read_huggingface_tokenizer(folder, encloses=True)
    random = np.random.default_rng(0)
    pairs = [tuple(LINES[i] for i in random.integers(len(LINES), size=2)) for _ in range(60)]
    pairs += [("", ""), ("a house", ""), ("", "a <mask>")]
    for name in ("stated", "written", "kept", "saved"):
        (tmp_path / name).mkdir()
    general = '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    (write_json(theirs, tmp_path / "stated") / "tokenizer_config.json").write_text(general)
    ours.save_huggingface(tmp_path / "written")
    ours.save(tmp_path / "kept")
    readers = [ours, load_tokenizer(tmp_path / "kept")]
    readers += [read_huggingface_tokenizer(tmp_path / name, True) for name in ("stated", "written")]
    theirs.enable_truncation(24)
    expected = [row.ids for row in theirs.encode_batch(pairs)]
    for tokenizer in readers:
        assert tokenizer.between_ids == (2, 2) and tokenizer.num_added(2) == 4
        assert pack_texts(tokenizer, 24, *zip(*pairs, strict=True))["token_ids"].to_list() == expected
    signature = text_signature(ours, 24, ["token_ids"], dict, {"kind": "arrays"}, pairs=True)
    assert [row.ids for (row,), _ in answerer_of(signature).read_all(pairs)] == expected
    module = tf.Module()
    module.tokenizer = ours
    module.pack = tf.function(
        lambda *texts: pack_texts(ours, 24, *texts)["token_ids"].to_tensor(-1),
        input_signature=[tf.TensorSpec([None], tf.string)] * 2,
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    packed = tf.saved_model.load(str(tmp_path / "saved")).pack(*map(tf.constant, zip(*pairs, strict=True)))
    np.testing.assert_array_equal(packed, tf.ragged.constant(expected).to_tensor(-1))
    for name in ("stated", "written"):
        refuse_other_pairs(tmp_path / name, readers[0], has_segments=False)
    refuse_other_pairs(folder, ours, has_segments=False)
    with pytest.raises(CheckpointError, match=r"expected pairs of texts as .* with segment 1 for B"):
        refuse_other_pairs(folder, ours, has_segments=True)


def test_other_numbers_of_ends_are_refused(xlm_roberta):
    with pytest.raises(ValueError, match="ends_between: expected 1 or 2, got 3"):
        SentencePieceTokenizer(read_huggingface_tokenizer(xlm_roberta[0]).model, ends_between=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"type": "BPE"}}, "model type: expected 'Unigram', got 'BPE'"),
        ({"pre_tokenizer": None}, "pre-tokenizer: expected Metaspace"),
        ({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "never"}}, "Metaspace with a prefix"),
        ({"normalizer": {"type": "Nmt"}}, "normalizer: expected SentencePiece's rules, got 'Nmt'"),
        ({"added_tokens": [{"id": 10_000, "content": "x"}]}, "'x' has no place at 10000"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}}, "precompiled_charsmap"),
        ({"model": {"type": "Unigram", "vocab": [["a", -1.0]]}}, "no unknown piece"),
        ({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", "b"]]}}, "expected"),
        ({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], ["a", 0.0]]}}, "expected"),
    ],
)
def test_other_files_are_refused(changes, message, tmp_path):
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -1.0)]
    theirs = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 2, False))
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    assert SentencePieceTokenizer.from_huggingface(write_json(theirs, tmp_path)).vocabulary_size == 4
    with pytest.raises(DataError, match=message):
        SentencePieceTokenizer.from_huggingface(write_json(theirs, tmp_path, **changes))


def test_no_file_and_no_model(tmp_path):
    with pytest.raises(DataError, match=r"expected spiece\.model, .* or tokenizer\.json, got none"):
        SentencePieceTokenizer.from_huggingface(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"\xff no model")
    with pytest.raises(DataError, match="expected a SentencePiece model"):
        SentencePieceTokenizer.from_huggingface(tmp_path)
