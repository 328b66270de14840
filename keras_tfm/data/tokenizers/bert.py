"""BERT's tokenizer in a TensorFlow graph (Devlin et al. 2019), with the rules of the `tokenizers` library.

Text is cleaned, lower-cased, stripped of accents, and split at white space and around punctuation and Chinese
characters; then each word is split into the longest known pieces. All steps but the last map one character to
a few, so they are one table with a row for each character.
"""

import functools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.configs import brief, checked
from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.tokenizers.added import (
    NUL,
    AddedToken,
    AddedTokens,
    Spans,
    appended,
    in_order,
    special_tokens,
)
from keras_tfm.data.tokenizers.bert_characters import NUM_CHARACTERS, PRIVATE, TAGS, characters, stands_alone
from keras_tfm.data.tokenizers.kernels import Kernel
from keras_tfm.data.tokenizers.offsets import encoded_size, original_offsets
from keras_tfm.data.tokenizers.published import Published, tokens_of_file, write_options
from keras_tfm.data.tokenizers.tokenizer import Tokenizer, merged
from keras_tfm.data.tokenizers.unigram import common_characters, require_size, sample_of
from keras_tfm.data.tokenizers.word_pieces import learn_word_pieces
from keras_tfm.training.safetensors import read_json

PARTS = ("model", "normalizer", "pre_tokenizer")  # of tokenizer.json
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NAMES = dict(zip((f"{role}_token" for role in ("pad", "unk", "cls", "sep", "mask")), SPECIAL, strict=True))
MAX_CHARACTERS = 100  # longer words are unknown
COVERAGE = 0.9995  # the share of a text's characters that get pieces in training: SentencePiece's default


class BERTTokenizer(Tokenizer):
    """BERT's WordPiece tokenizer (Devlin et al. 2019).

    `start_id` is [CLS] and `end_id` is [SEP]. An added token is recognised where a text spells it.
    `detokenize` puts one space between words.

    Args:
        vocabulary: the pieces by id, among them [PAD], [UNK], [CLS], [SEP] and [MASK].
        lowercase: whether text is lower-cased.
        strip_accents: whether accents are removed; None does so if `lowercase` is True.
        han: whether each Chinese character is a word.
        added: the added tokens (`AddedToken`), by default the five that the vocabulary must have. Tokens that
            it does not have follow it, in the order of their ids.

    Raises:
        ValueError: if a special token is missing, or a piece occurs twice, or an added token has another id
            or cannot be found as the `tokenizers` library finds it.

    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "walk", "##ing", "man"]
    >>> tokenizer = keras_tfm.data.BERTTokenizer(pieces)
    >>> tokenizer.tokenize(["The walking man!"]).to_list()  # "!" is unknown
    [[5, 6, 7, 8, 1]]
    """

    in_graphs = (
        "The SavedModel splits words as the task does, except next to about 500 rare marks and punctuation "
        "signs of recent Unicode versions, which the tokenizers library, used in training, in predict and in "
        "all other exports, does not know."
    )

    def __init__(
        self,
        vocabulary: Sequence[str],
        lowercase: bool = True,
        strip_accents: bool | None = None,
        han: bool = True,
        added: Iterable[AddedToken] | None = None,
    ):
        super().__init__(name="bert_tokenizer")
        vocabulary = list(vocabulary)
        missing = [token for token in SPECIAL if token not in vocabulary]
        if missing or len({"", *vocabulary}) != 1 + len(vocabulary):
            raise ValueError(f"expected pieces, each once, with {', '.join(SPECIAL)}, got {vocabulary[:5]}")
        added = in_order(special_tokens(SPECIAL, vocabulary) if added is None else added)
        self._tokens = (*vocabulary, *appended(added, vocabulary))
        self.vocabulary = tuple(vocabulary)
        self.vocabulary_size = len(self._tokens)
        self.lowercase, self.strip_accents, self.han = lowercase, strip_accents, han
        self.blank = "[MASK]"
        self.pad_id, self.unknown_id, self.start_id, self.end_id, self.mask_id = map(
            vocabulary.index, SPECIAL
        )
        special = {token.token_id for token in added if token.special}
        self.special_ids = tuple(sorted(special.union(map(vocabulary.index, SPECIAL))))
        rules = lowercase, lowercase if strip_accents is None else strip_accents, han
        self._words_of = _Characters(*rules)
        self._normalizer: Any = None
        if any(token.normalized for token in added):
            self._normalizer = _Characters(*rules, marks=False)
        self._added, self._added_to_texts = (
            AddedTokens(tokens, lambda texts: [text.decode() for text in self._normal(texts).numpy()])
            for tokens in (added, [token for token in added if token.content not in SPECIAL])
        )
        self._pieces = Kernel(functools.partial(_kernel, vocabulary))
        in_texts = [*(piece.removeprefix("##") for piece in vocabulary), *self._tokens[len(vocabulary) :]]
        self._words = tf.constant(in_texts)
        self.begins_word = tf.constant([x == y for x, y in zip(in_texts, self._tokens, strict=True)])

    @classmethod
    def train(
        cls, lines: Iterable[str], vocabulary_size: int = 30_522, lowercase: bool = True
    ) -> "BERTTokenizer":
        """Learn a vocabulary from `lines`; the same lines give the same vocabulary.

        `vocabulary_size`, at least 300, is an upper bound: little text gives fewer pieces. The rarest
        characters, one in two thousand of the text, stay unknown. Raises ValueError if there is no text.
        """
        require_size(vocabulary_size, least=300)
        lines, normalize, texts = sample_of(lines), cls(SPECIAL, lowercase).normalize, []
        special = "|".join(map(re.escape, SPECIAL))
        for start in range(0, len(lines), 8192):
            batch = [re.sub(special, " ", line) for line in lines[start : start + 8192]]
            texts += [text.decode() for text in normalize(batch).numpy()]
        # A character has two pieces, one for the beginning of a word and one for its inside. At most half
        # of the vocabulary consists of such pieces.
        texts = common_characters(texts, vocabulary_size // 4, COVERAGE)
        return cls(
            learn_word_pieces(texts, vocabulary_size, SPECIAL, MAX_CHARACTERS, stands_alone), lowercase
        )

    @classmethod
    def from_huggingface(cls, folder) -> "BERTTokenizer":
        """Read a folder's tokenizer.json or, if there is none, vocab.txt and tokenizer_config.json.

        The options of tokenizer_config.json win, as in `transformers`, if it names a class of BERT's. Raises
        DataError for another kind of tokenizer, and CheckpointError if a file is damaged.
        """
        published = Published(folder)
        path = published.folder / "tokenizer.json"
        if path.is_file():
            vocabulary, rules = _read(path)
        else:
            path, rules = published.folder / "vocab.txt", {}
            if not path.is_file():
                raise DataError(folder, None, "expected tokenizer.json or vocab.txt, got neither")
            vocabulary = path.read_text("utf-8").rstrip("\n").split("\n")
        rules |= published.bert_rules()
        for role, name in NAMES.items():
            if (token := published.role(role, name)) not in (name, None):
                raise DataError(folder, None, f"{role}: expected {name!r}, as in BERT, got {brief(token)}")
        try:
            return cls(vocabulary, **rules, added=published.added(NAMES, vocabulary))
        except ValueError as error:
            raise DataError(path, None, str(error)) from error

    @classmethod
    def load(cls, path) -> "BERTTokenizer":
        """Read a tokenizer.json that `save` wrote, or any other of the type WordPiece with BERT's rules."""
        vocabulary, rules = _read(path)
        try:
            return cls(vocabulary, **rules, added=tokens_of_file(path))
        except ValueError as error:
            raise DataError(path, None, str(error)) from error

    def save_huggingface(self, folder):
        """Write tokenizer.json and tokenizer_config.json into `folder`, as `transformers` reads them."""
        self.save(folder)
        options = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.han,
            **NAMES,
        }
        write_options(options, folder)

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        """Write `name`.json, which both `load_tokenizer` and the `tokenizers` library read."""
        path = pathlib.Path(folder, f"{name}.json")
        tokens = {token: self.vocabulary.index(token) for token in SPECIAL}
        sequence = {
            "A": {"Sequence": {"id": "A", "type_id": 0}},
            "B": {"Sequence": {"id": "B", "type_id": 1}},
        }
        start, end, last = (
            {"SpecialToken": {"id": token, "type_id": segment}}
            for token, segment in (("[CLS]", 0), ("[SEP]", 0), ("[SEP]", 1))
        )
        content = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [token.entry for token in self.added],
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": self.han,
                "strip_accents": self.strip_accents,
                "lowercase": self.lowercase,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [start, sequence["A"], end],
                "pair": [start, sequence["A"], end, sequence["B"], last],
                "special_tokens": {
                    token: {"id": token, "ids": [tokens[token]], "tokens": [token]}
                    for token in ("[CLS]", "[SEP]")
                },
            },
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": MAX_CHARACTERS,
                "vocab": {piece: i for i, piece in enumerate(self.vocabulary)},
            },
        }
        path.write_text(json.dumps(content, ensure_ascii=False) + "\n", "utf-8")
        return path

    @property
    def ordinary(self) -> tuple[str, ...]:
        return SPECIAL

    @property
    def tokens(self) -> list[str]:
        return list(self._tokens)

    def tokenize(self, strings) -> tf.RaggedTensor:
        strings = tf.strings.regex_replace(tf.convert_to_tensor(strings, tf.string), r"\x00", NUL)
        return self._added.tokenize(strings, self._tokenize, self._normal)

    def _tokenize(self, strings) -> tf.RaggedTensor:
        """Texts (B,) without added tokens, as ids (B, None)."""
        # Most words occur many times in a text; the expensive steps are done once for each distinct word.
        chunks = tf.strings.split(strings, " ")  # (B, chunks)
        unique, places = tf.unique(chunks.flat_values)
        words = tf.strings.split(self.normalize(unique))  # (unique chunks, words)
        known = tf.where(_is_long(words.flat_values), "[UNK]", words.flat_values)
        pieces = merged(self._pieces().tokenize(words.with_flat_values(known)))
        return merged(chunks.with_flat_values(tf.gather(pieces, places)))

    def tokenize_with_offsets(self, strings) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        # Another control character, of one byte, replaces NUL, at which TensorFlow's splitting ends.
        strings = tf.strings.regex_replace(tf.convert_to_tensor(strings, tf.string), r"\x00", "\x01")
        read = functools.partial(_normalized, self._words_of, read=self._tokenize_words_with_offsets)
        return self._added_to_texts.tokenize_with_offsets(
            strings, read, functools.partial(_normalized, self._normalizer)
        )

    def _tokenize_words_with_offsets(self, texts) -> Spans:
        """The pieces of normalised texts, in which spaces separate the words."""
        from keras_tfm.private.tensorflow_text import split

        words, begins, ends = split(texts, " ")  # (B, words)
        is_long, limits = _is_long(words.flat_values), (ends - begins).flat_values
        known = tf.where(is_long, "[UNK]", words.flat_values)
        pieces, starts, ends = self._pieces().tokenize_with_offsets(known)  # (words, pieces)
        rows = pieces.value_rowids()
        ends = tf.where(tf.gather(is_long, rows), tf.gather(limits, rows), ends.flat_values)
        of_words = tf.gather(begins.flat_values, rows)
        token_ids, starts, ends = (
            merged(words.with_flat_values(pieces.with_flat_values(x)))
            for x in (pieces.flat_values, of_words + starts.flat_values, of_words + ends)
        )  # (B, pieces)
        return token_ids, starts, ends

    def normalize(self, strings) -> tf.Tensor:
        """Normalised strings (B,), words separated by spaces."""
        return self._words_of.normalize(strings)

    def _normal(self, strings) -> tf.Tensor:
        """Normalised strings (B,), in which punctuation still touches words."""
        return self._normalizer.normalize(strings)

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        words, begins = tf.gather(self._words, token_ids), tf.gather(self.begins_word, token_ids)
        spaced = tf.where(begins.flat_values, " " + words.flat_values, words.flat_values)
        return tf.strings.strip(tf.strings.reduce_join(words.with_flat_values(spaced), axis=1))


def _kernel(vocabulary: Sequence[str]) -> Any:
    from keras_tfm.private.tensorflow_text import tf_text

    return tf_text.FastWordpieceTokenizer(
        vocabulary,
        token_out_type=tf.int32,
        unknown_token="[UNK]",
        max_bytes_per_word=4 * MAX_CHARACTERS,
        no_pretokenization=True,
        support_detokenization=False,
    )


def _is_long(words: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(words, "UTF8_CHAR") > MAX_CHARACTERS


class _Characters:
    """BERT's normalisation by a table of `characters`, which is made at the first use: half a second that a
    task whose texts are read on the host does not need.
    """

    def __init__(self, *rules: bool, marks: bool = True):
        self._rules, self._marks = rules, marks

    @functools.cached_property
    def _table(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The code points of all rows, and where each row begins among them."""
        values, lengths = characters(*self._rules, marks=self._marks)
        begins = np.concatenate([[0], np.cumsum(lengths)]).astype("int32")
        with tf.init_scope():  # the first use may be in a graph
            return tf.constant(values), tf.constant(begins)

    def normalize(self, strings) -> tf.Tensor:
        points = tf.strings.unicode_decode(strings, "UTF-8", errors="replace")  # (B, characters)
        return tf.strings.unicode_encode(merged(self(points)), "UTF-8")

    def __call__(self, characters: tf.RaggedTensor) -> tf.RaggedTensor:
        """The normalised code points of each character of (B, characters): (B, characters, None)."""
        points, begins = self._table
        codes, size, last = characters.flat_values, points.shape[0], NUM_CHARACTERS + len(TAGS)
        tags = codes - TAGS.start
        is_tag = (tags >= 0) & (tags < len(TAGS))
        rows = tf.where(codes < NUM_CHARACTERS, codes, tf.where(is_tag, NUM_CHARACTERS + tags, last))
        # What no version of Unicode has assigned yet stays as it is, as if all code points followed the
        # table's values.
        is_new = (rows == last) & (codes < PRIVATE)
        starts = tf.where(is_new, size + codes, tf.gather(begins, rows))
        limits = tf.where(is_new, starts + 1, tf.gather(begins, rows + 1))
        # A ragged table would be read whole at each call: half of the time of a short text.
        places = tf.ragged.range(starts, limits)
        normal = tf.gather(points, tf.minimum(places.flat_values, size - 1))
        normal = tf.where(places.flat_values < size, normal, places.flat_values - size)
        return characters.with_flat_values(places.with_flat_values(normal))


def _normalized(table: _Characters, strings: tf.Tensor, read: Callable[[tf.Tensor], Spans]) -> Spans:
    """What `read` gives for normalised strings, with offsets in the `strings` (B,)."""
    points, characters = tf.strings.unicode_decode_with_offsets(strings, "UTF-8")  # (B, characters)
    normal = table(points)  # (B, characters, points)
    sizes = tf.reduce_sum(normal.with_flat_values(encoded_size(normal.flat_values)), axis=2)
    token_ids, starts, ends = read(tf.strings.unicode_encode(merged(normal), "UTF-8"))
    lengths = tf.cast(tf.strings.length(strings), tf.int64)
    return token_ids, *original_offsets(starts, ends, characters, sizes, lengths)


def _read(path) -> tuple[list[str], dict]:
    """(The pieces, the rules as the tokenizer's arguments) of a tokenizer.json; DataError for others."""
    content = read_json(path)
    model, normalizer, splitter = (content.get(part) or {} for part in PARTS)
    for part, value in zip(PARTS, (model, normalizer, splitter), strict=True):
        if not isinstance(value, dict):
            raise DataError(path, None, f"{part}: expected an object, got {brief(value)}")
    rules = {
        "model type": (model.get("type", "WordPiece"), "WordPiece"),
        "prefix": (model.get("continuing_subword_prefix", "##"), "##"),
        "longest word": (model.get("max_input_chars_per_word", MAX_CHARACTERS), MAX_CHARACTERS),
        "unknown token": (model.get("unk_token", "[UNK]"), "[UNK]"),
        "normalizer": (normalizer.get("type"), "BertNormalizer"),
        "cleaning": (normalizer.get("clean_text", True), True),
        "pre-tokenizer": (splitter.get("type"), "BertPreTokenizer"),
    }
    for name, (value, expected) in rules.items():
        if value != expected:
            raise DataError(path, None, f"{name}: expected {expected!r}, got {value!r}")
    vocabulary = model.get("vocab")
    ids = [*vocabulary.values()] if isinstance(vocabulary, dict) else []
    if not all(type(token_id) is int for token_id in ids) or not ids or sorted(ids) != [*range(len(ids))]:
        raise DataError(path, None, "vocab: expected the ids 0, 1, ... each once")
    try:
        return sorted(model["vocab"], key=model["vocab"].__getitem__), {
            "lowercase": checked(normalizer.get("lowercase", True), bool, "lowercase"),
            "strip_accents": checked(normalizer.get("strip_accents"), bool | None, "strip_accents"),
            "han": checked(normalizer.get("handle_chinese_chars", True), bool, "handle_chinese_chars"),
        }
    except ValueError as error:
        raise DataError(path, None, str(error)) from error
