"""Tokenizers that run inside a TensorFlow graph, and so inside a SavedModel: what they are, and WordPiece.

They share one interface, and each is saved as one file beside the model.
"""

import pathlib
from collections.abc import Iterable, Sequence

import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2

from keras_tfm.data.unigram import common_characters, require_size, sample_of, train_unigram


class Tokenizer(tf.Module):
    """What all tokenizers are: `tokenize` and `detokenize`, traceable in a `tf.function`, over
    `vocabulary_size` ids, those trained here 0 = padding, 1 = start, 2 = end, 3 = unknown, then the pieces.
    """

    pad_id, start_id, end_id, unknown_id = range(4)
    vocabulary_size: int
    blank: str | None = None  # how a text spells the mask, of which there is one then

    @property
    def between_ids(self) -> tuple[int, ...]:
        """What stands between two texts that are read as a pair."""
        return (self.end_id,)

    def num_added(self, num_texts: int = 1) -> int:
        """How many special tokens stand around and between so many texts that are read together."""
        return 2 + (num_texts - 1) * len(self.between_ids)

    def tokenize(self, strings) -> tf.RaggedTensor:
        """Splits UTF-8 strings (B,) into ids (B, None), int32, without start and end."""
        raise NotImplementedError

    def tokenize_with_offsets(self, strings) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `tokenize`, and where each piece begins and ends in its string (valid UTF-8): bytes (B, None),
        int64, of whole characters. What spells a special token is text here like any other.
        """
        raise NotImplementedError

    def tokenize_words(self, words) -> tf.RaggedTensor:
        """Splits words (N,) of a text that is split already, each as it would be behind a space."""
        return self.tokenize(words)

    def detokenize(self, token_ids) -> tf.Tensor:
        """Joins ids, ragged (B, None) or dense (B, T), into strings (B,). Padding, starts and everything from
        the first `end_id` on are left out; an id outside the vocabulary reads as `unknown_id`.
        """
        if isinstance(token_ids, tf.RaggedTensor):
            token_ids = token_ids.to_tensor(self.pad_id)
        token_ids = tf.cast(token_ids, tf.int32)  # (B, T)
        before_end = tf.cumsum(tf.cast(token_ids == self.end_id, tf.int32), axis=1) == 0
        is_text = before_end & (token_ids != self.pad_id) & (token_ids != self.start_id)
        is_known = (token_ids >= 0) & (token_ids < self.vocabulary_size)
        token_ids = tf.where(is_known, token_ids, self.unknown_id)
        return self._join(tf.ragged.boolean_mask(token_ids, is_text))

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        raise NotImplementedError

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        """Writes the tokenizer's one file into `folder`, for `load_tokenizer`, and returns its path."""
        raise NotImplementedError

    def save_huggingface(self, folder):
        """Writes into `folder` what `transformers` reads; TypeError for what it does not know."""
        raise TypeError(f"transformers knows no {type(self).__name__}.")


class WordPieceTokenizer(Tokenizer):
    """BERT's sub-words (Schuster and Nakajima 2012): text is split at white space and around punctuation,
    then each word into the longest pieces known. Lossy: `detokenize` puts one space between words and
    punctuation alike, control characters are gone, and a word with an unknown character is "[UNK]".
    `vocabulary` lists the pieces, `SPECIAL` first.
    """

    SPECIAL = ("[PAD]", "[START]", "[END]", "[UNK]")

    def __init__(self, vocabulary: Sequence[str]):
        super().__init__(name="word_piece_tokenizer")
        vocabulary = list(vocabulary)
        if tuple(vocabulary[:4]) != self.SPECIAL or len({"", *vocabulary}) != 1 + len(vocabulary):
            special = ", ".join(self.SPECIAL)
            raise ValueError(f"expected pieces, each once, after {special}, got {vocabulary[:5]}")
        self.vocabulary_size = len(vocabulary)
        self._vocabulary = tuple(vocabulary)
        self._pieces = tf_text.FastWordpieceTokenizer(
            vocabulary,
            token_out_type=tf.int32,
            unknown_token="[UNK]",
            no_pretokenization=True,
            support_detokenization=True,
        )

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int = 8000) -> "WordPieceTokenizer":
        """Learns the pieces of the words in `lines`. `vocabulary_size` is an upper bound, at least 300:
        little text gives fewer. The same lines give the same pieces. Raises ValueError when there is no text.
        """
        return cls(learn_word_pieces(lines, vocabulary_size, cls.SPECIAL, _spaced_words))

    def tokenize(self, strings) -> tf.RaggedTensor:
        return self._pieces.tokenize(_split_words(strings)).merge_dims(1, 2)

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        return self._pieces.detokenize(token_ids)

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        path = pathlib.Path(folder, f"{name}.vocab.txt")
        path.write_bytes("".join(f"{piece}\n" for piece in self._vocabulary).encode())
        return path


def learn_word_pieces(
    lines: Iterable[str], vocabulary_size: int, special: Sequence[str], split, coverage: float = 1.0
) -> list[str]:
    """The pieces by id, `special` first, that spell the words in `lines` best; `split` puts a space between
    the words of strings (B,). `vocabulary_size` is an upper bound, at least 300: little text gives fewer. Of
    the text's characters the most frequent, `coverage` of them, are pieces. ValueError when there is no text.
    """
    require_size(vocabulary_size, least=300)
    lines = common_characters(sample_of(lines), vocabulary_size // 4, coverage)
    texts = []
    for start in range(0, len(lines), 8192):
        texts += [text.decode() for text in split(lines[start : start + 8192]).numpy()]
    if not any(texts):
        raise ValueError("lines: expected words to train a tokenizer on, got none")
    model = train_unigram(texts, vocabulary_size, byte_fallback=False)
    pieces = [piece.piece for piece in sentencepiece_model_pb2.ModelProto.FromString(model).pieces[4:]]
    # From SentencePiece's spelling to WordPiece's, the likeliest first: "▁word" to "word", "s" to "##s".
    words = [piece[1:] if piece.startswith("▁") else f"##{piece}" for piece in pieces]
    characters = sorted({character for piece in pieces for character in piece} - {"▁"})
    spelled = [form for character in characters for form in (character, f"##{character}")]
    vocabulary = dict.fromkeys([*special, *spelled, *filter(None, words)])  # each once, in order
    return list(vocabulary)[:vocabulary_size]


def _spaced_words(strings) -> tf.Tensor:
    return tf.strings.reduce_join(_split_words(strings), 1, separator=" ")


def _split_words(strings) -> tf.RaggedTensor:
    """Splits strings (B,) into words (B, None): at white space, and around each mark and Han sign."""
    strings = tf.strings.regex_replace(tf.convert_to_tensor(strings, tf.string), r"[\p{Cc}\p{Cf}\p{Z}]", " ")
    mark = r"[!-/:-@\[-`{-~\p{P}\p{Han}]"
    return tf_text.regex_split(strings, f" +|{mark}", keep_delim_regex_pattern=mark)
