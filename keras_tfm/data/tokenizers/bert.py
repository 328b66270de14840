"""BERT's tokenizer in a TensorFlow graph (Devlin et al. 2019), with the rules of the `tokenizers` library.

Text is cleaned, lower-cased, stripped of accents, and split at white space and around punctuation and Chinese
characters; then each word is split into the longest known pieces. All steps but the last map one character to
a few, so they are one table with a row for each character.
"""

import json
import pathlib
import re
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_tfm.configs import brief, checked
from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.tokenizers.bert_characters import NUM_CHARACTERS, SIGN, characters, stands_alone
from keras_tfm.data.tokenizers.offsets import encoded_size, original_offsets
from keras_tfm.data.tokenizers.tokenizer import Tokenizer, merged
from keras_tfm.data.tokenizers.unigram import common_characters, require_size, sample_of
from keras_tfm.data.tokenizers.word_pieces import learn_word_pieces
from keras_tfm.training.safetensors import read_json

PARTS = ("model", "normalizer", "pre_tokenizer")  # of tokenizer.json
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_CHARACTERS = 100  # longer words are unknown
COVERAGE = 0.9995  # the share of a text's characters that get pieces in training: SentencePiece's default


class BERTTokenizer(Tokenizer):
    """BERT's WordPiece tokenizer (Devlin et al. 2019).

    `start_id` is [CLS] and `end_id` is [SEP]. A special token is recognised where a text spells it.
    `detokenize` puts one space between words.

    Args:
        vocabulary: the pieces by id, among them [PAD], [UNK], [CLS], [SEP] and [MASK].
        lowercase: whether text is lower-cased.
        strip_accents: whether accents are removed; None does so if `lowercase` is True.

    Raises:
        ValueError: if a special token is missing, or a piece occurs twice.

    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "walk", "##ing", "man"]
    >>> tokenizer = keras_tfm.data.BERTTokenizer(pieces)
    >>> tokenizer.tokenize(["The walking man!"]).to_list()  # "!" is unknown
    [[5, 6, 7, 8, 1]]
    """

    def __init__(self, vocabulary: Sequence[str], lowercase: bool = True, strip_accents: bool | None = None):
        super().__init__(name="bert_tokenizer")
        vocabulary = list(vocabulary)
        missing = [token for token in SPECIAL if token not in vocabulary]
        if missing or len({"", *vocabulary}) != 1 + len(vocabulary):
            raise ValueError(f"expected pieces, each once, with {', '.join(SPECIAL)}, got {vocabulary[:5]}")
        self.vocabulary = tuple(vocabulary)
        self.vocabulary_size = len(vocabulary)
        self.lowercase, self.strip_accents = lowercase, strip_accents
        self.blank = "[MASK]"
        self.pad_id, self.unknown_id, self.start_id, self.end_id, self.mask_id = map(
            vocabulary.index, SPECIAL
        )
        self.special_ids = tuple(vocabulary.index(token) for token in SPECIAL)
        values, lengths = characters(lowercase, lowercase if strip_accents is None else strip_accents)
        self._points, ends = tf.constant(values), np.cumsum(lengths)
        self._begins = tf.constant(np.concatenate([[0], ends]).astype("int32"))  # of each row among them
        names = {token: SIGN + token[1:-1] for token in SPECIAL}
        if lowercase:
            names = {token: name.lower() for token, name in names.items()}
        self._unknown = names["[UNK]"]
        self._pieces = tf_text.FastWordpieceTokenizer(
            [names.get(piece, piece) for piece in vocabulary],
            token_out_type=tf.int32,
            unknown_token=self._unknown,
            max_bytes_per_word=4 * MAX_CHARACTERS,
            no_pretokenization=True,
            support_detokenization=False,
        )
        self._words = tf.constant([piece.removeprefix("##") for piece in vocabulary])
        self.begins_word = tf.constant([not piece.startswith("##") for piece in vocabulary])

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
        for start in range(0, len(lines), 8192):
            normal = (text.decode() for text in normalize(lines[start : start + 8192]).numpy())
            texts += [re.sub(rf"{SIGN}\w+", "", text) for text in normal]  # without special tokens
        # A character has two pieces, one for the beginning of a word and one for its inside. At most half
        # of the vocabulary consists of such pieces.
        texts = common_characters(texts, vocabulary_size // 4, COVERAGE)
        return cls(
            learn_word_pieces(texts, vocabulary_size, SPECIAL, MAX_CHARACTERS, stands_alone), lowercase
        )

    @classmethod
    def from_huggingface(cls, folder) -> "BERTTokenizer":
        """Read a folder's tokenizer.json or, if there is none, vocab.txt and tokenizer_config.json.

        Raises DataError for another kind of tokenizer, and CheckpointError if a file is damaged.
        """
        folder = pathlib.Path(folder)
        if (folder / "tokenizer.json").is_file():
            return cls.load(folder / "tokenizer.json")
        path, config = folder / "vocab.txt", {}
        if not path.is_file():
            raise DataError(folder, None, "expected tokenizer.json or vocab.txt, got neither")
        if (folder / "tokenizer_config.json").is_file():
            config = read_json(folder / "tokenizer_config.json")
        try:
            vocabulary = path.read_text("utf-8").rstrip("\n").split("\n")
            return cls(vocabulary, config.get("do_lower_case", True), config.get("strip_accents"))
        except ValueError as error:
            raise DataError(path, None, str(error)) from error

    @classmethod
    def load(cls, path) -> "BERTTokenizer":
        """Read a tokenizer.json that `save` wrote, or any other of the type WordPiece with BERT's rules."""
        content = read_json(path)
        model, normalizer, splitter = (content.get(part) or {} for part in PARTS)
        for part, value in zip(PARTS, (model, normalizer, splitter), strict=True):
            if not isinstance(value, dict):
                raise DataError(path, None, f"{part}: expected an object, got {brief(value)}")
        rules = {
            "model type": (model.get("type", "WordPiece"), "WordPiece"),
            "prefix": (model.get("continuing_subword_prefix", "##"), "##"),
            "longest word": (model.get("max_input_chars_per_word", MAX_CHARACTERS), MAX_CHARACTERS),
            "normalizer": (normalizer.get("type"), "BertNormalizer"),
            "cleaning": (normalizer.get("clean_text", True), True),
            "Han": (normalizer.get("handle_chinese_chars", True), True),
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
            pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
            lowercase = checked(normalizer.get("lowercase", True), bool, "lowercase")
            strip_accents = checked(normalizer.get("strip_accents"), bool | None, "strip_accents")
            return cls(pieces, lowercase, strip_accents)
        except ValueError as error:
            raise DataError(path, None, str(error)) from error

    def save_huggingface(self, folder):
        self.save(folder)

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        """Write `name`.json, which both `load_tokenizer` and the `tokenizers` library read."""
        path = pathlib.Path(folder, f"{name}.json")
        tokens = {token: self.vocabulary.index(token) for token in SPECIAL}
        options = {
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
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
            "added_tokens": [{"id": i, "content": token, **options} for token, i in tokens.items()],
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
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
    def tokens(self) -> list[str]:
        return list(self.vocabulary)

    def tokenize(self, strings) -> tf.RaggedTensor:
        # Most words occur many times in a text; the expensive steps are done once for each distinct word.
        chunks = tf.strings.split(self._mark(strings), " ")  # (B, chunks)
        unique, places = tf.unique(chunks.flat_values)
        words = tf.strings.split(self._normalize(unique))  # (unique chunks, words)
        known = tf.where(_is_long(words.flat_values), self._unknown, words.flat_values)
        pieces = merged(self._pieces.tokenize(words.with_flat_values(known)))
        return merged(chunks.with_flat_values(tf.gather(pieces, places)))

    def tokenize_with_offsets(self, strings) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        strings = tf.convert_to_tensor(strings, tf.string)
        points, characters = tf.strings.unicode_decode_with_offsets(strings, "UTF-8")  # (B, characters)
        # The private character that marks special tokens does not count as a character of the text.
        normal = self._normal(tf.minimum(points, NUM_CHARACTERS))  # (B, characters, points)
        sizes = tf.reduce_sum(normal.with_flat_values(encoded_size(normal.flat_values)), axis=2)
        texts = tf.strings.unicode_encode(merged(normal), "UTF-8")
        words, begins, ends = tf_text.regex_split_with_offsets(texts, " ")  # (B, words)
        is_long, limits = _is_long(words.flat_values), (ends - begins).flat_values
        known = tf.where(is_long, self._unknown, words.flat_values)
        pieces, starts, ends = self._pieces.tokenize_with_offsets(known)  # (words, pieces)
        rows = pieces.value_rowids()
        ends = tf.where(tf.gather(is_long, rows), tf.gather(limits, rows), ends.flat_values)
        of_words = tf.gather(begins.flat_values, rows)
        token_ids, starts, ends = (
            merged(words.with_flat_values(pieces.with_flat_values(x)))
            for x in (pieces.flat_values, of_words + starts.flat_values, of_words + ends)
        )  # (B, pieces)
        lengths = tf.cast(tf.strings.length(strings), tf.int64)
        return token_ids, *original_offsets(starts, ends, characters, sizes, lengths)

    def normalize(self, strings) -> tf.Tensor:
        """Normalised strings (B,), words separated by spaces; a private character marks special tokens."""
        return self._normalize(self._mark(strings))

    def _mark(self, strings) -> tf.Tensor:
        """Strings in which a private character stands before each special token, and nowhere else."""
        strings = tf.strings.regex_replace(tf.convert_to_tensor(strings, tf.string), SIGN, "")
        names = "|".join(token[1:-1] for token in SPECIAL)
        return tf.strings.regex_replace(strings, rf"\[({names})\]", rf" {SIGN}\1 ")

    def _normalize(self, strings) -> tf.Tensor:
        points = tf.strings.unicode_decode(strings, "UTF-8", errors="replace")  # (B, characters)
        return tf.strings.unicode_encode(merged(self._normal(points)), "UTF-8")

    def _normal(self, characters: tf.RaggedTensor) -> tf.RaggedTensor:
        """The normalised code points of each character of (B, characters): (B, characters, None)."""
        points = characters.flat_values
        # The row after the table's characters is that of all other code points, the last one that of SIGN.
        above = NUM_CHARACTERS + tf.cast(points == ord(SIGN), tf.int32)
        rows = tf.where(points < NUM_CHARACTERS, points, above)
        # A ragged table would be read whole at each call: half of the time of a short text.
        places = tf.ragged.range(tf.gather(self._begins, rows), tf.gather(self._begins, rows + 1))
        normal = tf.gather(self._points, places.flat_values)
        return characters.with_flat_values(places.with_flat_values(normal))

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        words, begins = tf.gather(self._words, token_ids), tf.gather(self.begins_word, token_ids)
        spaced = tf.where(begins.flat_values, " " + words.flat_values, words.flat_values)
        return tf.strings.strip(tf.strings.reduce_join(words.with_flat_values(spaced), axis=1))


def _is_long(words: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(words, "UTF8_CHAR") > MAX_CHARACTERS
