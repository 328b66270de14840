"""Sub-word tokenizers that run inside a TensorFlow graph, and so inside a SavedModel.

Both are trained on the user's own text, share one interface and are saved as one file beside the model:
`SentencePieceTokenizer` (Kudo and Richardson, 2018; unigram model of Kudo, 2018) gives a text back
exactly, and reads published models;
`WordPieceTokenizer` (Schuster and Nakajima, 2012, with BERT's word splitting) does not keep white space.
"""

import collections
import hashlib
import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2
from tensorflow_text.python.ops import sentencepiece_tokenizer

from keras_tfm.data.sources import DataError
from keras_tfm.data.unigram import train_unigram

# More text changes a vocabulary of thousands little, and training takes its memory.
MAX_TRAINING_LINES = 500_000


class Tokenizer(tf.Module):
    """What both tokenizers are: `tokenize` and `detokenize`, traceable in a `tf.function`, over the ids
    0 = padding, 1 = start, 2 = end, 3 = unknown and then the pieces, `vocabulary_size` in all.
    """

    pad_id, start_id, end_id, unknown_id = range(4)
    vocabulary_size: int

    @property
    def between_ids(self) -> tuple[int, ...]:
        """What stands between two texts that are read as a pair."""
        return (self.end_id,)

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


class SentencePieceTokenizer(Tokenizer):
    """A serialised SentencePiece `model`, all of it: pieces, ids, normalisation and special tokens.

    One made by `train` is lossless: `detokenize(tokenize(text)) == text` for any valid UTF-8 without NUL
    (which comes back as "▁"; malformed bytes come back as U+FFFD), rare characters being spelled in bytes.
    A published one (`from_huggingface`) normalises as it says, and recognises its control pieces where a
    text spells them. Without a start piece that is `pad_id`; `mask_id` and `sentinel_ids` (T5's
    <extra_id_0>, ...) are there where their pieces are; `begins_word` (V,) tells which pieces do.
    ValueError for what is no model.
    """

    NUM_BYTES = 256  # pieces <0x00>..<0xFF>

    def __init__(self, model: bytes):
        super().__init__(name="sentence_piece_tokenizer")
        try:
            proto = sentencepiece_model_pb2.ModelProto.FromString(model)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (
            Exception
        ) as error:  # protobuf's DecodeError has no public home, RuntimeError is SentencePiece's
            raise ValueError("expected a SentencePiece model, the file is damaged") from error
        self.pad_id, self.end_id = processor.pad_id(), processor.eos_id()
        self.unknown_id = processor.unk_id()
        self.start_id = processor.bos_id() if processor.bos_id() >= 0 else self.pad_id
        if min(self.pad_id, self.end_id) < 0 or not proto.HasField("normalizer_spec"):
            raise ValueError(
                "expected pieces for padding and end in the model, "
                f"got the ids {self.pad_id} and {self.end_id}"
            )
        self.vocabulary_size = processor.vocab_size()
        # What keeps white space as it is has been trained here, on texts spelled as `tokenize` does.
        normalizer = proto.normalizer_spec
        self._is_lossless = not (normalizer.add_dummy_prefix or normalizer.remove_extra_whitespaces)
        kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
        special = {i: p.piece for i, p in enumerate(proto.pieces) if p.type in (kinds.CONTROL, kinds.UNKNOWN)}
        self.special_ids = tuple(special)
        ids = {piece: i for i, piece in special.items()}
        self.mask_id = next((ids[name] for name in ("[MASK]", "<mask>") if name in ids), None)
        numbered = (ids.get(f"<extra_id_{i}>") for i in range(len(special)))
        self.sentinel_ids = tuple(i for i in numbered if i is not None)
        self._special = np.array([piece.encode() for piece in ids], object)
        # The longest first, where one begins another.
        self._pattern = "|".join(re.escape(piece) for piece in sorted(ids, key=len, reverse=True))
        self._spelled = np.array([_spelling(proto, piece) for piece in proto.pieces], object)
        self.begins_word = tf.constant([piece.piece.startswith("▁") for piece in proto.pieces])
        self._model = model
        self._pieces = tf_text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        self._pieces._model_resource = _SharedModel(model)

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int = 8000) -> "SentencePieceTokenizer":
        """Trains a unigram model on `lines`. `vocabulary_size` is an upper bound, at least 300: little text
        gives fewer pieces. The same lines give the same model. Raises ValueError when there is no text.
        """
        _require_size(vocabulary_size, least=300)
        # Half the pieces at most are single characters: Chinese would otherwise leave no room for words.
        lines = _common_characters(_sample(lines), limit=(vocabulary_size - 4 - cls.NUM_BYTES) // 2)
        return cls(train_unigram(lines, vocabulary_size, byte_fallback=True))

    @classmethod
    def from_huggingface(cls, folder) -> "SentencePieceTokenizer":
        """The tokenizer of a folder of T5, ALBERT, DeBERTa-v2/v3 or mBART: of its SentencePiece model or,
        without one, of its tokenizer.json. DataError where there is neither, or one that is not understood.
        """
        from keras_tfm.data.sentencepiece_files import read_model

        model = read_model(folder)
        try:
            return cls(model)
        except ValueError as error:
            raise DataError(folder, None, str(error)) from error

    @property
    def symbols(self) -> list[bytes]:
        """What each token spells: the symbols of `generation.StopSequences`."""
        return self._spelled.tolist()

    @property
    def language_ids(self) -> dict[str, int]:
        """The ids of mBART's languages, "en_XX" and others."""
        names = ((piece.decode(), i) for piece, i in zip(self._special, self.special_ids, strict=True))
        return {name: i for name, i in names if re.fullmatch("[a-z]{2,3}_[A-Z]{2}", name)}

    def tokenize(self, strings) -> tf.RaggedTensor:
        strings = tf.convert_to_tensor(strings, tf.string)
        if self._is_lossless:
            strings = tf.strings.regex_replace(strings, "▁", "\0")
            # A space before the text lets the first word share its pieces with the same word further on.
            return self._pieces.tokenize(tf.where(strings == "", strings, " " + strings))
        strings = tf.strings.regex_replace(strings, r"\x00", "\U0010ffff")  # it would end the splitting
        texts = tf_text.regex_split(strings, self._pattern, keep_delim_regex_pattern=self._pattern)
        parts = texts.flat_values
        is_special = tf.strings.regex_full_match(parts, self._pattern)
        found = tf.boolean_mask(parts, is_special)[:, None] == tf.constant(self._special)
        found = tf.gather(tf.constant(self.special_ids), tf.argmax(found, axis=1))
        found = tf.RaggedTensor.from_row_lengths(found, tf.cast(is_special, tf.int64))
        pieces = self._pieces.tokenize(tf.where(is_special, "", parts))
        return texts.with_flat_values(tf.concat([found, pieces], axis=1)).merge_dims(1, 2)

    def tokenize_with_offsets(self, strings) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        # What `tokenize` would replace becomes here what has as many bytes.
        strings = tf.strings.regex_replace(tf.convert_to_tensor(strings, tf.string), r"\x00", " ")
        if not self._is_lossless:
            return self._pieces.tokenize_with_offsets(strings)
        texts = tf.strings.regex_replace(strings, "▁", "\ufffd")
        texts = tf.where(texts == "", texts, " " + texts)
        token_ids, *offsets = self._pieces.tokenize_with_offsets(texts)
        starts, ends = (tf.maximum(x - 1, 0) for x in offsets)  # without the space before the text
        return token_ids, starts, ends

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        spelled = tf.gather(tf.constant(self._spelled), token_ids.flat_values)
        strings = tf.strings.reduce_join(token_ids.with_flat_values(spelled), axis=-1)
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", replace_control_characters=False)
        strings = tf.strings.regex_replace(strings, "^ ", "", replace_global=False)
        return tf.strings.regex_replace(strings, r"\x00", "▁") if self._is_lossless else strings

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        path = pathlib.Path(folder, f"{name}.model")
        path.write_bytes(self._model)
        return path


def _spelling(proto, piece) -> bytes:
    """What a piece of a SentencePiece model reads as."""
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    if piece.type == kinds.UNKNOWN:
        return proto.trainer_spec.unk_surface.encode()
    if piece.type == kinds.BYTE:
        return bytes([int(piece.piece[3:-1], 16)])
    return piece.piece.replace("▁", " ").encode()


class WordPieceTokenizer(Tokenizer):
    """BERT's sub-words: text is split at white space and around punctuation, then each word into the longest
    pieces known. Lossy: `detokenize` puts one space between words and punctuation alike, control characters
    are gone, and a word with an unknown character is "[UNK]". `vocabulary` lists the pieces, `SPECIAL` first.
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


def train_tokenizer(
    lines: Iterable[str], kind: str = "sentencepiece", vocabulary_size: int = 8000
) -> Tokenizer:
    """Trains a tokenizer of `kind`, "sentencepiece", "wordpiece", "bytes" (byte-level pairs) or "characters",
    on `lines`; see the classes' `train`.
    """
    # These are made of this file.
    from keras_tfm.data.byte_pairs import ByteLevelTokenizer
    from keras_tfm.data.characters import CharacterTokenizer

    kinds: dict[str, Any] = {
        "sentencepiece": SentencePieceTokenizer,
        "wordpiece": WordPieceTokenizer,
        "bytes": ByteLevelTokenizer,
        "characters": CharacterTokenizer,
    }
    if kind not in kinds:
        raise ValueError(f"kind: expected {', '.join(kinds)}, got {kind!r}")
    return kinds[kind].train(lines, vocabulary_size)


def load_tokenizer(folder, name: str = "tokenizer") -> Tokenizer:
    """Loads what `save` wrote, telling the kind by the file that is there. Raises DataError when there is
    none, and it or CheckpointError when it is damaged.
    """
    if pathlib.Path(folder, f"{name}.json").is_file():
        from keras_tfm.data.bert_tokenizer import BERTTokenizer  # which derives from Tokenizer

        return BERTTokenizer.load(pathlib.Path(folder, f"{name}.json"))
    from keras_tfm.data.byte_pairs import ByteLevelTokenizer
    from keras_tfm.data.characters import CharacterTokenizer

    for suffix, kind in (("bytes", ByteLevelTokenizer), ("characters", CharacterTokenizer)):
        path = pathlib.Path(folder, f"{name}.{suffix}.json")
        if path.is_file():
            try:
                return kind(**json.loads(path.read_text("utf-8")))
            except (ValueError, TypeError, AttributeError) as error:
                raise DataError(path, None, str(error)) from error
    model, vocabulary = pathlib.Path(folder, f"{name}.model"), pathlib.Path(folder, f"{name}.vocab.txt")
    path = model if model.is_file() else vocabulary
    if not path.is_file():
        raise DataError(
            folder, None, f"expected a tokenizer, {name}.model, {name}.vocab.txt or {name}*.json, got none"
        )
    content = path.read_bytes()
    try:
        if path == model:
            return SentencePieceTokenizer(content)
        if not content.endswith(b"\n"):
            raise ValueError("expected a newline at the end, the file is cut short")
        return WordPieceTokenizer(content.decode()[:-1].split("\n"))
    except ValueError as error:
        raise DataError(path, None, str(error)) from error


def learn_word_pieces(
    lines: Iterable[str], vocabulary_size: int, special: Sequence[str], split, coverage: float = 1.0
) -> list[str]:
    """The pieces by id, `special` first, that spell the words in `lines` best; `split` puts a space between
    the words of strings (B,). `vocabulary_size` is an upper bound, at least 300: little text gives fewer. Of
    the text's characters the most frequent, `coverage` of them, are pieces. ValueError when there is no text.
    """
    _require_size(vocabulary_size, least=300)
    lines = _common_characters(_sample(lines), vocabulary_size // 4, coverage)
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


def _require_size(vocabulary_size: int, least: int):
    if vocabulary_size < least:
        raise ValueError(f"vocabulary_size: expected at least {least}, got {vocabulary_size}")


class _SharedModel(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model that lives as long as the process. tensorflow_text's own belongs to an eager
    kernel, and goes with it whenever TensorFlow clears its kernels, as `tf.random.set_seed` does.
    """

    def __init__(self, model: bytes):
        super().__init__()
        self._model = model
        with tf.init_scope():  # now: made within a function's first trace, it would belong to that trace
            self.resource_handle  # noqa: B018

    def _create_resource(self):
        return sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(
            model=self._model, shared_name=f"sentencepiece_{hashlib.sha256(self._model).hexdigest()}"
        )


def _sample(lines: Iterable[str]) -> list[str]:
    lines = [line for line in lines if line]
    if not lines:
        raise ValueError("lines: expected text to train a tokenizer on, got none")
    if len(lines) > MAX_TRAINING_LINES:
        chosen = np.random.default_rng(0).choice(len(lines), MAX_TRAINING_LINES, replace=False)
        lines = [lines[position] for position in np.sort(chosen)]
    return lines


def _common_characters(lines: list[str], limit: int, coverage: float = 1.0) -> list[str]:
    """Blanks all but the `limit` most frequent characters, fewer where those are `coverage` of the text, and
    the two SentencePiece keeps for itself.
    """
    counts: collections.Counter[str] = collections.Counter()
    for line in lines:
        counts.update(line)
    covered = np.cumsum([count for _, count in counts.most_common()])
    limit = min(limit, 1 + int(np.searchsorted(covered, coverage * covered[-1])))
    rare = {character for character, _ in counts.most_common()[limit:]} | {"▁", "\0"}
    blank = str.maketrans(dict.fromkeys(rare, " "))
    return [line.translate(blank) for line in lines]
