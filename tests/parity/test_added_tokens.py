"""Live: folders of transformers with drawn added tokens and options, against transformers' own tokenizer.

Each tokenizer is saved by transformers; then its files are changed as older or hand-made folders have them.
"""

import json
import random

import pytest
import transformers

from keras_tfm.data import ByteLevelTokenizer, CLIPTokenizer, DataError, read_huggingface_tokenizer
from keras_tfm.data.tokenizers.added import FLAGS
from keras_tfm.data.tokenizers.huggingface import read_huggingface_special_tokens
from tests.data.tokenizers.chats import write_folder
from tests.data.tokenizers.test_added import LINES, TOKENS, drawn_texts, is_plain
from tests.data.tokenizers.test_published import PIECES
from tests.data.tokenizers.test_sentencepiece_files import FILES, trained
from tests.data.tokenizers.test_splitting import drawn

pytestmark = pytest.mark.parity
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
DEBERTA = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]


def bert(kind):
    pieces = [*PIECES, *"abcdefghijklmnopqrstuvwxyz.#-_1<>", "##er", "##s", "##1", "hello", "world", "lower"]
    return kind(vocab={piece: i for i, piece in enumerate(dict.fromkeys(pieces))})


def byte_pairs(kind, names):
    learnt = ByteLevelTokenizer.train(LINES, 300).content
    tokens = [*names, *(token for token in learnt["tokens"] if token != "<|endoftext|>")]
    merges = [tuple(merge.split(" ")) for merge in learnt["merges"]]
    return kind(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)


def clip():
    learnt = CLIPTokenizer.train(LINES, 560).content
    merges = [tuple(merge.split(" ")) for merge in learnt["merges"]]
    return transformers.CLIPTokenizer(
        vocab={token: i for i, token in enumerate(learnt["tokens"])}, merges=merges
    )


def sentence_pieces(family, folder):
    (folder / FILES[family]).write_bytes(trained(family))
    write(folder / "config.json", {"model_type": family})
    return transformers.AutoTokenizer.from_pretrained(folder)


KINDS = {
    "bert": lambda _: bert(transformers.BertTokenizer),
    "distilbert": lambda _: bert(transformers.DistilBertTokenizer),
    "roberta": lambda _: byte_pairs(transformers.RobertaTokenizer, ROBERTA),
    "bart": lambda _: byte_pairs(transformers.BartTokenizer, ROBERTA),
    "deberta": lambda _: byte_pairs(transformers.DebertaTokenizer, DEBERTA),
    "gpt2": lambda _: byte_pairs(transformers.GPT2Tokenizer, ["<|endoftext|>"]),
    "qwen2": lambda _: byte_pairs(transformers.Qwen2Tokenizer, ["<|endoftext|>"]),
    "clip": lambda _: clip(),
    "t5": lambda folder: sentence_pieces("t5", folder),
    "albert": lambda folder: sentence_pieces("albert", folder),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    return tmp_path_factory.mktemp(kind)


@pytest.fixture(scope="module")
def made(kind, folder):
    """Makes a new tokenizer of the kind."""
    tokenizer = KINDS[kind](folder)
    tokenizer.save_pretrained(folder / "plain")
    write(folder / "plain" / "config.json", {"model_type": kind})
    return lambda: transformers.AutoTokenizer.from_pretrained(folder / "plain")


def write(path, content):
    path.write_text(json.dumps(content))


def change(path, **entries):
    content = json.loads(path.read_text())
    write(path, {name: value for name, value in (content | entries).items() if value is not None})


def as_saved(folder, kind, draw):
    """The folder as transformers writes it."""


def without_a_decoder(folder, kind, draw):
    """Added tokens in tokenizer.json alone."""
    change(folder / "tokenizer_config.json", added_tokens_decoder=None)


def of_the_general_class(folder, kind, draw):
    change(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def with_another_decoder(folder, kind, draw):
    """tokenizer_config.json and tokenizer.json differ in flags."""
    options = json.loads((folder / "tokenizer_config.json").read_text())
    entries = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    decoder = {entry.pop("id"): entry for entry in entries}
    for entry in [*decoder.values()][-3:]:
        entry["lstrip"] = not entry["lstrip"]
    general = {"tokenizer_class": "PreTrainedTokenizerFast"} if draw.random() < 0.5 else {}
    write(folder / "tokenizer_config.json", options | general | {"added_tokens_decoder": decoder})


def with_old_files(folder, kind, draw):
    """Without tokenizer.json and a decoder: added_tokens.json and special_tokens_map.json list the tokens."""
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):
        return
    (folder / "tokenizer.json").unlink()
    change(folder / "tokenizer_config.json", added_tokens_decoder=None, extra_special_tokens=None)
    if content["model"]["type"] == "WordPiece":
        (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n")
    else:
        write(folder / "vocab.json", vocabulary)
        merges = [" ".join(x) if isinstance(x, list) else x for x in content["model"]["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    added = {x["content"]: x["id"] for x in content["added_tokens"] if x["id"] >= len(vocabulary)}
    write(folder / "added_tokens.json", added)
    special = [name for name in added if draw.random() < 0.5]
    write(folder / "special_tokens_map.json", {"additional_special_tokens": special})


CHANGES = [as_saved, without_a_decoder, of_the_general_class, with_another_decoder, with_old_files]


@pytest.mark.parametrize("changed", CHANGES, ids=lambda function: function.__name__)
def test_ids_are_transformers(kind, made, changed, tmp_path):
    draw = random.Random(f"{kind} {changed.__name__}")
    theirs, is_pieces = made(), kind in ("t5", "albert")
    for content, _ in draw.sample(TOKENS, 9):
        flags = {name: draw.random() < 0.3 for name in FLAGS}
        flags["normalized"] &= not is_pieces or is_plain(content, FLAGS)
        if content.strip():
            theirs.add_tokens([transformers.AddedToken(content, **flags)])
    theirs.save_pretrained(tmp_path)
    write(tmp_path / "config.json", {"model_type": kind})
    changed(tmp_path, kind, draw)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = read_huggingface_tokenizer(tmp_path)
    texts = drawn_texts("pieces" if is_pieces else kind, changed.__name__, 200)
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    for text, row, other in zip(texts, ours.tokenize(texts).to_list(), expected, strict=True):
        assert row == other, (text, [ours.tokens[i] for i in row], theirs.convert_ids_to_tokens(other))
    (tmp_path / "back").mkdir()
    write(tmp_path / "back" / "config.json", {"model_type": kind})
    ours.save_huggingface(tmp_path / "back")
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert back(texts, add_special_tokens=False)["input_ids"] == ours.tokenize(texts).to_list()


@pytest.mark.parametrize("options", [
    {"tokenize_chinese_chars": False}, {"strip_accents": False}, {"do_lower_case": False},
    {"do_lower_case": False, "strip_accents": True}, {"do_basic_tokenize": False},
    {"additional_special_tokens": ["<user>", "[NEW]"]},
])  # fmt: skip
def test_berts_options_are_transformers(options, tmp_path):
    bert(transformers.BertTokenizer).save_pretrained(tmp_path)
    write(tmp_path / "config.json", {"model_type": "bert"})
    for has_file in (True, False):
        if not has_file:
            content = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
            (tmp_path / "tokenizer.json").unlink()
            (tmp_path / "vocab.txt").write_text("\n".join(sorted(content, key=content.get)) + "\n")
        change(tmp_path / "tokenizer_config.json", added_tokens_decoder=None, **options)
        theirs, ours = (
            transformers.AutoTokenizer.from_pretrained(tmp_path),
            read_huggingface_tokenizer(tmp_path),
        )
        texts = [*drawn_texts("bert", 0), "東京 É [NEW] <user>s"]
        assert ours.tokenize(texts).to_list() == theirs(texts, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("kind", ["roberta", "gpt2", "deberta"])
@pytest.mark.parametrize("general", [False, True])
def test_a_space_before_texts_is_transformers(kind, general, tmp_path):
    theirs = KINDS[kind](None)
    theirs.add_tokens(["<user>"])
    theirs.save_pretrained(tmp_path)
    write(tmp_path / "config.json", {"model_type": kind})
    change(tmp_path / "tokenizer_config.json", add_prefix_space=True)
    if general:
        of_the_general_class(tmp_path, kind, None)
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), read_huggingface_tokenizer(tmp_path)
    texts = drawn_texts(kind, 1)
    assert ours.tokenize(texts).to_list() == theirs(texts, add_special_tokens=False)["input_ids"]


def test_japanese_words_are_refused(tmp_path):
    bert(transformers.BertTokenizer).save_pretrained(tmp_path)
    change(tmp_path / "tokenizer_config.json", tokenizer_class="BertJapaneseTokenizer")
    with pytest.raises(DataError, match="got 'BertJapaneseTokenizer'"):
        read_huggingface_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "family"),
    [
        ("llama3", "PreTrainedTokenizerFast", "llama"),
        ("llama3", "LlamaTokenizerFast", "llama"),
        ("tekken", "PreTrainedTokenizerFast", "mistral"),
        ("tekken", "GPT2TokenizerFast", "mistral"),
        ("tekken", "LlamaTokenizerFast", "mistral"),
        ("qwen2", "Qwen2Tokenizer", "qwen2"),
        ("qwen2", "Qwen2TokenizerFast", "qwen3"),
        ("qwen2", "PreTrainedTokenizerFast", "qwen2"),
    ],
)
def test_chats_are_transformers(kind, name, family, tmp_path):
    write_folder(kind, tmp_path, tokenizer_class=name)
    write(tmp_path / "config.json", {"model_type": family})
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), read_huggingface_tokenizer(tmp_path)
    texts = drawn(400)
    assert ours.tokenize(texts).to_list() == theirs(texts, add_special_tokens=False)["input_ids"]
    before, after = read_huggingface_special_tokens(tmp_path, ours)
    assert [*before, *after] == theirs("")["input_ids"]
    assert (ours.end_id, theirs.bos_token_id or ours.start_id) == (theirs.eos_token_id, ours.start_id)
    ours.save_huggingface(tmp_path, **({"add_start": True} if before else {}))
    back = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert back(texts)["input_ids"] == theirs(texts)["input_ids"]
    roles = [f"{role}_token" for role in ("bos", "eos", "pad", "unk")]
    assert [getattr(back, role) for role in roles] == [getattr(theirs, role) for role in roles]
