"""Folders of transformers: classes, options and added tokens in their files are obeyed, or refused by name.

tests/parity/test_added_tokens.py compares the same kinds of folders with transformers itself.
"""

import json

import pytest

from keras_tfm.data import BERTTokenizer, ByteLevelTokenizer, DataError, read_huggingface_tokenizer
from keras_tfm.data.tokenizers.added import AddedToken
from keras_tfm.data.tokenizers.published import FAMILIES, Published
from keras_tfm.training.safetensors import CheckpointError
from tests.data.tokenizers.test_added import sentence_piece_model

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "<user>",
    "<",
    "user",
    ">",
    "é",
    "e",
    "東",
    "##京",
    "東京",
]
TAGS = "Hé <user> 東京"


def write(folder, **files):
    """Write objects as JSON, `tokenizer_config` as tokenizer_config.json."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return tmp_path


OPTIONS = {"tokenizer_class": "BertTokenizer"}
USER = {"content": "<user>", "lstrip": True, "normalized": False}
NEW = {"content": "<new>", "special": False, "single_word": True, "normalized": True}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, []),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"5": USER, "14": NEW}}},
            [
                AddedToken("<user>", 5, lstrip=True),
                AddedToken("<new>", 14, normalized=True, single_word=True),
            ],
        ),
        ({"tokenizer_config": {"additional_special_tokens": ["<user>"]}}, [AddedToken("<user>", 5, True)]),
        (
            {"tokenizer_config": {"extra_special_tokens": {"image_token": "<i>"}}},
            [AddedToken("<i>", 14, True)],
        ),
        ({"tokenizer_config": {"image_token": "<i>"}}, [AddedToken("<i>", 14, True)]),
        (
            {"special_tokens_map": {"additional_special_tokens": [USER]}},
            [AddedToken("<user>", 5, True, lstrip=True)],
        ),
        (
            {
                "added_tokens": {"<b>": 15, "<a>": 14},
                "tokenizer_config": {"additional_special_tokens": ["<b>"]},
            },
            [AddedToken("<a>", 14, normalized=True), AddedToken("<b>", 15, True)],
        ),
        (  # the decoder hides the older files
            {"tokenizer_config": {"added_tokens_decoder": {"14": NEW}}, "added_tokens": {"<b>": 14}},
            [AddedToken("<new>", 14, normalized=True, single_word=True)],
        ),
    ],
)
def test_where_added_tokens_are_listed(files, expected, folder):
    write(folder, **files)
    tokenizer = read_huggingface_tokenizer(folder)
    assert [token for token in tokenizer.added if token.token_id > 4] == expected
    assert tokenizer.tokens[14:] == [token.content for token in expected if token.token_id > 13]
    assert [token.special for token in tokenizer.added[:5]] == [True] * 5


def test_the_general_class_takes_the_file_and_then_the_decoder(folder):
    added = [*BERTTokenizer(PIECES).added, AddedToken("<user>", 5), AddedToken("<new>", 14)]
    BERTTokenizer(PIECES, lowercase=False, added=added).save(folder)
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": {"14": NEW}}
    write(folder, tokenizer_config=options | {"do_lower_case": True})
    ours = read_huggingface_tokenizer(folder)
    assert ours.added[5:] == (
        AddedToken("<user>", 5),
        AddedToken("<new>", 14, normalized=True, single_word=True),
    )
    assert not ours.lowercase
    write(folder, tokenizer_config=OPTIONS | {"added_tokens_decoder": {"14": NEW}, "do_lower_case": True})
    ours = read_huggingface_tokenizer(folder)  # this class makes its rules of its options alone
    assert [token.content for token in ours.added[5:]] == ["<new>"] and ours.lowercase


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["[UNK]", "<user>", "東", "[UNK]"]),
        ({"do_lower_case": False}, ["[UNK]", "<user>", "東", "[UNK]"]),
        ({"tokenize_chinese_chars": False}, ["[UNK]", "<user>", "東京"]),
        ({"strip_accents": False, "tokenize_chinese_chars": False}, ["[UNK]", "<user>", "東京"]),
    ],
)
def test_berts_options(options, expected, folder):
    write(folder, tokenizer_config=OPTIONS | {"additional_special_tokens": ["<user>"]} | options)
    ours = read_huggingface_tokenizer(folder)
    assert [ours.tokens[i] for i in ours.tokenize([TAGS]).to_list()[0]] == expected
    accents = options.get("strip_accents", options.get("do_lower_case", True))
    expected = ["e" if accents else "é"]
    assert [ours.tokens[i] for i in ours.tokenize(["é"]).to_list()[0]] == expected
    ours.save_huggingface(folder)
    again = read_huggingface_tokenizer(folder)
    assert again.tokenize([TAGS, "É"]).to_list() == ours.tokenize([TAGS, "É"]).to_list()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"tokenizer_config": {"tokenizer_class": "BertJapaneseTokenizer"}},
            "got 'BertJapaneseTokenizer': its",
        ),
        ({"tokenizer_config": {"tokenizer_class": "BertweetTokenizerFast"}}, "got 'BertweetTokenizerFast'"),
        ({"config": {"tokenizer_class": "BertJapaneseTokenizer"}}, "got 'BertJapaneseTokenizer'"),
        (
            {"tokenizer_config": {"tokenizer_class": 7}},
            "tokenizer_class: expected one of AlbertTokenizer, .*got 7",
        ),
        (
            {"tokenizer_config": {"subword_tokenizer_type": "character"}},
            "subword_tokenizer_type: expected 'wordp",
        ),
        (
            {"tokenizer_config": {"word_tokenizer_type": "mecab"}},
            "word_tokenizer_type: expected 'basic', got 'me",
        ),
        (
            {"tokenizer_config": {"tokenize_chinese_chars": "no"}},
            "`tokenize_chinese_chars` must be true or false; it is 'no'",
        ),
        ({"tokenizer_config": {"cls_token": "<s>"}}, r"cls_token: expected '\[CLS\]', as in BERT, got '<s>'"),
        ({"tokenizer_config": {"added_tokens_decoder": {"20": NEW}}}, "'<new>': expected the id 14, got 20"),
        ({"tokenizer_config": {"added_tokens_decoder": [NEW]}}, "added_tokens_decoder: expected an object"),
        ({"tokenizer_config": {"added_tokens_decoder": {"x": NEW}}}, "expected the id of a token, got 'x'"),
        ({"tokenizer_config": {"additional_special_tokens": "<a>"}}, "expected a list of tokens, got '<a>'"),
        ({"tokenizer_config": {"additional_special_tokens": 3}}, "expected a list of tokens, got 3"),
        ({"tokenizer_config": {"additional_special_tokens": [3]}}, "expected a token or an object.*got 3"),
    ],
)
def test_what_is_not_understood_is_refused(files, message, folder):
    write(folder, **files)
    with pytest.raises(DataError, match=message):
        read_huggingface_tokenizer(folder)


@pytest.mark.parametrize("name", [*FAMILIES, "BertTokenizerFast", "PreTrainedTokenizerFast"])
def test_known_classes_are_read(name, folder):
    write(folder, tokenizer_config={"tokenizer_class": name})
    assert Published(folder).is_general == name.startswith("PreTrained")


@pytest.mark.parametrize(
    "rule", [None, {"type": "ByteLevel"}, {"type": "BertProcessing", "cls": ["a", 9], "sep": ["b", 3]}]
)
def test_an_encoder_must_put_its_tokens_around_a_text(rule, folder):
    path = BERTTokenizer(PIECES).save(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"post_processor": rule}))
    write(folder, tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"})
    with pytest.raises(
        CheckpointError, match=r"post_processor: expected \[2\] before a text and \[3\] after it"
    ):
        read_huggingface_tokenizer(folder, encloses=True)
    assert read_huggingface_tokenizer(folder).tokenize(["user"]).to_list() == [[7]]
    write(folder, tokenizer_config=OPTIONS)  # this class has a rule of its own
    assert read_huggingface_tokenizer(folder, encloses=True).start_id == 2
    write(folder, tokenizer_config=OPTIONS | {"truncation_side": "left"})
    with pytest.raises(CheckpointError, match='truncation_side: expected "right", as texts are cut at their'):
        read_huggingface_tokenizer(folder)
    write(folder, tokenizer_config=OPTIONS | {"split_special_tokens": True})
    with pytest.raises(CheckpointError, match="split_special_tokens: expected false, got true"):
        read_huggingface_tokenizer(folder)


LINES = [f"hello the world {i}" for i in range(30)]


@pytest.fixture
def gpt2(tmp_path):
    content = ByteLevelTokenizer.train(LINES, 300).content
    write(tmp_path, vocab={token: i for i, token in enumerate(content["tokens"])})
    (tmp_path / "merges.txt").write_text("\n".join(content["merges"]) + "\n")
    return tmp_path, content


def test_what_pads_for_gpt2(gpt2):
    folder, content = gpt2
    size = len(content["tokens"])
    write(folder, tokenizer_config={"tokenizer_class": "GPT2Tokenizer", "pad_token": "[PAD]"})
    ours = read_huggingface_tokenizer(folder)
    assert (ours.pad_id, ours.vocabulary_size, ours.end_id) == (
        size,
        size + 1,
        content["tokens"].index("<|endoftext|>"),
    )
    assert ours.tokenize(["a[PAD]"]).to_list()[0][1] == size
    assert len(ours.tokenize(["<|endoftext|>"]).to_list()[0]) > 1  # no text yields the end
    assert ours.detokenize([[size, *ours.tokenize(["hello"]).to_list()[0]]]).numpy() == [b"hello"]
    ours.save_huggingface(folder)
    assert read_huggingface_tokenizer(folder).content == ours.content


def test_a_space_before_a_text(gpt2):
    folder, _ = gpt2
    plain = read_huggingface_tokenizer(folder)
    write(folder, tokenizer_config={"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True})
    ours = read_huggingface_tokenizer(folder)
    texts = ["hello", " hello", "\thello", ""]
    assert ours.tokenize(texts).to_list() == plain.tokenize([" hello", " hello", " \thello", ""]).to_list()
    ids, starts, ends = (x.to_list() for x in ours.tokenize_with_offsets(["hello é", "\tx"]))
    assert ids == ours.tokenize(["hello é", "\tx"]).to_list()
    assert starts[0][0] == 0 and ends[0][-1] == 8 and starts[1] == [0, 0, 1] and ends[1] == [1, 1, 2]


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("normalizer", {"type": "NFC"}, "normalizer: expected none, got {'type': 'NFC'}"),
        ("model", {"ignore_merges": True}, "ignore_merges: expected none, got True"),
        ("model", {"continuing_subword_prefix": "##"}, "continuing_subword_prefix: expected none, got '##'"),
        ("pre_tokenizer", {"use_regex": False}, "use_regex: expected none"),
        ("pre_tokenizer", {"type": "Whitespace"}, "got BPE of Whitespace"),
    ],
)
def test_other_byte_pairs_are_refused(part, change, message, gpt2):
    folder, content = gpt2
    ByteLevelTokenizer(**content).save_huggingface(folder)
    stated = json.loads((folder / "tokenizer.json").read_text())
    write(folder, tokenizer=stated | {part: (stated[part] or {}) | change})
    write(folder, tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"})
    with pytest.raises(DataError, match=message):
        read_huggingface_tokenizer(folder)


@pytest.mark.parametrize("name", ["spm.model", "spiece.model"])
def test_added_tokens_beside_a_sentence_piece_model(name, tmp_path):
    """DeBERTa-v2 makes pieces of white space beside a normalized token; T5 does not."""
    (tmp_path / name).write_bytes(sentence_piece_model())
    family = "DebertaV2Tokenizer" if name == "spm.model" else "T5Tokenizer"
    raw = NEW | {"normalized": False}
    size = len(read_huggingface_tokenizer(tmp_path).tokens)
    unknown = {"content": "<unk>", "special": True, "normalized": True}
    for token, is_refused in ((raw, False), (NEW, name == "spm.model")):
        decoder = {"2": unknown, str(size): token}
        write(tmp_path, tokenizer_config={"tokenizer_class": family, "added_tokens_decoder": decoder})
        if is_refused:
            with pytest.raises(DataError, match="'<new>': expected normalized false"):
                read_huggingface_tokenizer(tmp_path)
        else:
            ids = read_huggingface_tokenizer(tmp_path).tokenize(["a <new> <unk>"]).to_list()[0]
            assert ids[-2:] == [size, 2]


def test_the_file_wins_where_a_sentence_piece_model_has_other_pieces(tmp_path):
    (tmp_path / "spiece.model").write_bytes(sentence_piece_model())
    ours = read_huggingface_tokenizer(tmp_path)
    ours.save_huggingface(tmp_path)
    assert read_huggingface_tokenizer(tmp_path).model == ours.model
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary[5], vocabulary[6] = vocabulary[6], vocabulary[5]
    write(tmp_path, tokenizer=content)
    assert read_huggingface_tokenizer(tmp_path).tokens[5:7] == ours.tokens[6:4:-1]


@pytest.mark.parametrize("option", [{"add_prefix_space": False}, {"split_by_punct": True}])
def test_options_of_sentence_pieces_are_refused(option, tmp_path):
    (tmp_path / "spiece.model").write_bytes(sentence_piece_model())
    write(tmp_path, tokenizer_config={"tokenizer_class": "T5Tokenizer"} | option)
    with pytest.raises(DataError, match=f"{next(iter(option))}: expected "):
        read_huggingface_tokenizer(tmp_path)
