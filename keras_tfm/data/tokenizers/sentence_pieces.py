"""SentencePiece's sub-words, trained on the user's own text or published, in a TensorFlow graph."""

import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from keras_tfm.configs import brief, checked
from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.tokenizers.added import AddedToken, AddedTokens, Spans, in_order
from keras_tfm.data.tokenizers.kernels import sentencepiece_kernel
from keras_tfm.data.tokenizers.merges import joined
from keras_tfm.data.tokenizers.offsets import original_offsets
from keras_tfm.data.tokenizers.published import Published, write_options
from keras_tfm.data.tokenizers.sentencepiece_files import (
    CANONICAL,
    MASKS,
    normalizing_model,
    read_model,
    train_canonical,
    with_tokens,
    write_canonical,
    write_model,
)
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.data.tokenizers.unigram import common_characters, require_size, sample_of, train_unigram
from keras_tfm.training.safetensors import read_json

# Unicode's rule: a capital sigma becomes a final small sigma if a letter stands before it and none after it,
# where marks do not count.
LETTERS, MARKS = r"\p{Lu}\p{Ll}\p{Lt}", r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:·’‘․﹒＇．："
# What `clean_up_tokenization_spaces` does in `transformers`, one after the other.
CLEANED = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
IN_GRAPHS = (
    "The SavedModel reads texts as SentencePiece does. The tokenizers library, used in training, in predict "
    "and in all other exports, loses a mark or joiner right behind a character that normalisation replaces, "
    "and U+0085 at the ends of a text."
)
FINAL = chr(0x10FFFD)  # a private character that replaces a sigma with no letter after it


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece tokenizer (Kudo and Richardson 2018).

    One made by `train` is lossless for valid UTF-8 without NUL: rare characters are spelled by their bytes.
    A published one (`from_huggingface`) normalises by its own rules and recognises its control pieces and
    other added tokens where a text spells them. If there is no start piece, `start_id` is `pad_id`. `mask_id`
    and `sentinel_ids` (T5's <extra_id_0>, ...) exist if the model has these pieces; `begins_word` (V,) marks
    the pieces that begin words.

    Args:
        model: the serialised model.
        added: added tokens (`AddedToken`, or entries of tokenizer.json) beside the control pieces, or instead
            of control pieces with the same id; all are pieces of the model.
        cleans_up: whether `detokenize` removes spaces before punctuation and English contractions.
        ends_between: how many end tokens stand between two texts, 1 or, for XLM-RoBERTa, 2.

    Raises:
        ValueError: if `model` is not a SentencePiece model, or an added token is none of its pieces or cannot
            be found as the `tokenizers` library finds it, or `ends_between` is neither 1 nor 2.

    >>> lines = ["the cat sat on the mat", "a cat and a dog"] * 9
    >>> tokenizer = keras_tfm.data.SentencePieceTokenizer.train(lines, vocabulary_size=300)
    >>> tokenizer.detokenize(tokenizer.tokenize(["the  dog"])).numpy().tolist()
    [b'the  dog']
    """

    NUM_BYTES = 256  # pieces <0x00>..<0xFF>

    def __init__(
        self,
        model: bytes,
        added: Iterable[AddedToken | Mapping] = (),
        cleans_up: bool = False,
        ends_between: int = 1,
    ):
        super().__init__(name="sentence_piece_tokenizer")
        try:
            proto = sentencepiece_model_pb2.ModelProto.FromString(model)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except Exception as error:  # a RuntimeError, or protobuf's DecodeError, which is private
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
        self._model = model
        if ends_between not in (1, 2):
            raise ValueError(f"ends_between: expected 1 or 2, got {brief(ends_between)}")
        self.ends_between = ends_between
        self.replaced = CLEANED if checked(cleans_up, bool, "cleans_up") else ()
        # Only models that `train` made keep white space as it is.
        normalizer = proto.normalizer_spec
        self._is_lossless = not (normalizer.add_dummy_prefix or normalizer.remove_extra_whitespaces)
        self._is_canonical = normalizer.name == CANONICAL
        self.in_graphs = "" if self._is_lossless else IN_GRAPHS
        kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
        special = {i: p.piece for i, p in enumerate(proto.pieces) if p.type in (kinds.CONTROL, kinds.UNKNOWN)}
        usual = [AddedToken(piece, i, special=True) for i, piece in special.items()]
        self._set_added(usual, in_order(added), [piece.piece for piece in proto.pieces])
        of_texts = {token.token_id for token in self.added if not token.special}
        self.special_ids = tuple(i for i in special if i not in of_texts)
        ids = {special[i]: i for i in self.special_ids}
        self.blank = next((name for name in MASKS if name in ids), None)
        self.mask_id = None if self.blank is None else ids[self.blank]
        numbered = (ids.get(f"<extra_id_{i}>") for i in range(len(special)))
        self.sentinel_ids = tuple(i for i in numbered if i is not None)
        self._special = np.array([piece.encode() for piece in ids], object)
        self._spelled = np.array([_spelling(proto, piece) for piece in proto.pieces], object)
        self.begins_word = tf.constant([piece.piece.startswith("▁") for piece in proto.pieces])
        self._pieces = sentencepiece_kernel(model, tf.int32)

    def _set_added(self, usual: list[AddedToken], added: list[AddedToken], pieces: list[str]) -> None:
        """Find the `usual` added tokens, or instead of them `added` ones with the same id, and all others."""
        for token in added:
            if pieces[token.token_id : token.token_id + 1] != [token.content]:
                raise ValueError(
                    f"added_tokens: {token.content!r}: expected a piece of the model, "
                    f"got the id {token.token_id}"
                )
            if token.normalized and token.content != " ".join(token.content.split()):
                raise ValueError(
                    f"added_tokens: {token.content!r}: expected single spaces inside a normalized one"
                )
        tokens = in_order(({x.token_id: x for x in usual} | {x.token_id: x for x in added}).values())
        if self._is_canonical and tokens != usual:
            new = next(token.content for token in tokens if token not in usual)
            raise ValueError(f"added_tokens: expected none beside a tokenizer of SigLIP's, got {new!r}")
        self._is_usual = tokens == usual
        characters = {x for piece in pieces for x in piece} if any(t.normalized for t in tokens) else set()
        self._characters: Any = (
            sentencepiece_kernel(normalizing_model(self._model, characters), tf.string)
            if characters
            else None
        )
        self._added = AddedTokens(tokens, self._normal_contents)
        self._added_to_texts = AddedTokens((x for x in tokens if not x.special), self._normal_contents)

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int = 8000) -> "SentencePieceTokenizer":
        """Train a unigram model on `lines`; the same lines give the same model.

        `vocabulary_size`, at least 300, is an upper bound: little text gives fewer pieces. Raises ValueError
        if there is no text.
        """
        require_size(vocabulary_size, least=300)
        # Half the pieces at most are single characters: Chinese would otherwise leave no room for words.
        limit = (vocabulary_size - 4 - cls.NUM_BYTES) // 2
        # SentencePiece uses both barred characters itself.
        lines = common_characters(sample_of(lines), limit, barred="▁\0")
        return cls(train_unigram(lines, vocabulary_size))

    @classmethod
    def train_canonical(cls, lines: Iterable[str], vocabulary_size: int = 8000) -> "SentencePieceTokenizer":
        """Train a model like SigLIP's on `lines`, for lower-cased text without punctuation.

        `vocabulary_size`, at least 100, is an upper bound. Raises ValueError if there is no text.
        """
        require_size(vocabulary_size, least=100)
        lines = common_characters(sample_of(lines), vocabulary_size // 2, barred="▁\0")
        return cls(train_canonical(lines, vocabulary_size))

    @classmethod
    def from_huggingface(cls, folder) -> "SentencePieceTokenizer":
        """Read the SentencePiece model of a T5, ALBERT, DeBERTa-v2/v3, mBART or SigLIP folder.

        A folder without such a file, or with other pieces in its tokenizer.json, is read by its
        tokenizer.json.
        Raises DataError if both are missing, or a rule in them is not supported.
        """
        published, model = Published(folder), read_model(folder)
        try:
            proto = sentencepiece_model_pb2.ModelProto.FromString(model)
            added = published.added({}, [piece.piece for piece in proto.pieces])
            if proto.normalizer_spec.name == CANONICAL:  # strips white space by itself
                added = [token for token in added if token.token_id >= len(proto.pieces)]
            if not published.splits_at_spaces():
                kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
                own = {x.piece for x in proto.pieces if x.type in (kinds.CONTROL, kinds.UNKNOWN)}
                added = [x._replace(normalized=x.normalized and x.content not in own) for x in added]
                if later := [token.content for token in added if token.normalized]:
                    raise ValueError(
                        f"added_tokens: {later[0]!r}: expected normalized false, since this kind of "
                        "tokenizer makes pieces of the white space beside it"
                    )
            for name, expected in (("add_prefix_space", True), ("split_by_punct", False)):
                if not published.is_general and published.options.get(name, expected) != expected:
                    raise ValueError(f"{name}: expected {expected}, got {brief(published.options[name])}")
            ends_between = published.ends_between(proto.trainer_spec.eos_id)
            return cls(with_tokens(model, added), added, published.cleans_up(), ends_between)
        except ValueError as error:
            raise DataError(folder, None, str(error)) from error

    @property
    def model(self) -> bytes:
        """The serialised model: the constructor's argument."""
        return self._model

    @property
    def ordinary(self) -> tuple[str, ...]:
        return tuple(token.content for token in self.added if token.special)

    @property
    def is_lossless(self) -> bool:
        """Whether `train` made it, so that white space is restored exactly."""
        return self._is_lossless

    @property
    def tokens(self) -> list[str]:
        pieces = sentencepiece_model_pb2.ModelProto.FromString(self._model).pieces
        return [piece.piece for piece in pieces]

    @property
    def symbols(self) -> list[bytes]:
        """The bytes of each token: the `symbols` of `generation.StopSequences`."""
        return self._spelled.tolist()

    @property
    def language_ids(self) -> dict[str, int]:
        """The ids of mBART's language tokens, such as "en_XX"."""
        names = ((piece.decode(), i) for piece, i in zip(self._special, self.special_ids, strict=True))
        return {name: i for name, i in names if re.fullmatch("[a-z]{2,3}_[A-Z]{2}", name)}

    def tokenize(self, strings) -> tf.RaggedTensor:
        strings = tf.convert_to_tensor(strings, tf.string)
        if self._is_lossless:
            strings = tf.strings.regex_replace(strings, "▁", "\0")
            # With a space before the text, its first word has the same pieces as that word in another place.
            return self._pieces().tokenize(tf.where(strings == "", strings, " " + strings))
        strings = tf.strings.regex_replace(strings, r"\x00", "\U0010ffff")  # splitting would end at a NUL
        strings = with_final_sigmas(strings) if self._is_canonical else strings
        return self._added.tokenize(strings, self._pieces().tokenize, self._normal)

    def tokenize_with_offsets(self, strings) -> Spans:
        # The characters that `tokenize` replaces are replaced here by others of the same number of bytes.
        strings = tf.strings.regex_replace(tf.convert_to_tensor(strings, tf.string), r"\x00", " ")
        if not self._is_lossless:
            texts = with_final_sigmas(strings) if self._is_canonical else strings
            return self._added_to_texts.tokenize_with_offsets(
                texts, self._pieces().tokenize_with_offsets, self._normalized
            )
        texts = tf.strings.regex_replace(strings, "▁", "\ufffd")
        texts = tf.where(texts == "", texts, " " + texts)
        token_ids, *offsets = self._pieces().tokenize_with_offsets(texts)
        starts, ends = (tf.maximum(x - 1, 0) for x in offsets)  # without the space before the text
        return token_ids, starts, ends

    def _normal(self, strings) -> tf.Tensor:
        """Strings (B,) as the model normalises them."""
        return joined(self._characters().tokenize(strings))

    def _normal_contents(self, contents: list[str]) -> list[str]:
        return [text.decode() for text in self._normal(contents).numpy()]

    def _normalized(self, strings, read: Callable[[tf.Tensor], Spans]) -> Spans:
        """What `read` gives for normalised strings, with offsets in the `strings` (B,)."""
        characters, begins, _ = self._characters().tokenize_with_offsets(strings)  # (B, characters)
        sizes = characters.with_flat_values(tf.cast(tf.strings.length(characters.flat_values), tf.int64))
        token_ids, starts, ends = read(joined(characters))
        ends = tf.maximum(ends, starts + 1)  # the sign of a word's begin may have no character of its own
        lengths = tf.cast(tf.strings.length(strings), tf.int64)
        return token_ids, *original_offsets(starts, ends, begins, sizes, lengths)

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        spelled = tf.gather(tf.constant(self._spelled), token_ids.flat_values)
        strings = tf.strings.reduce_join(token_ids.with_flat_values(spelled), axis=-1)
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", replace_control_characters=False)
        strings = tf.strings.regex_replace(strings, "^ ", "", replace_global=False)
        for text, value in self.replaced:
            strings = tf.strings.regex_replace(strings, re.escape(text), value)
        return tf.strings.regex_replace(strings, r"\x00", "▁") if self._is_lossless else strings

    def save_huggingface(self, folder, special: SpecialTokens | None = None):
        """Write tokenizer.json, or SigLIP's spiece.model, and tokenizer_config.json into `folder`, as
        `transformers` reads them.

        `special` are the ids before and after a text, by default start and end, and for T5 and mBART only the
        end. Raises TypeError for a lossless tokenizer, which `transformers` cannot express.
        """
        if self._is_lossless:
            super().save_huggingface(folder)
        if self._is_canonical:
            write_canonical(self._model, folder)
        else:
            starts = [] if self.start_id == self.pad_id or self.language_ids else [self.start_id]
            special = special or SpecialTokens(starts, [self.end_id])
            write_model(self._model, self.added, special, self.ends_between, folder)
        if self.replaced:
            path = pathlib.Path(folder, "tokenizer_config.json")
            write_options(read_json(path) | {"clean_up_tokenization_spaces": True}, folder)

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        """Write `name`.model and, for added tokens that are not all control pieces, for the cleaning of texts
        and for other pairs, `name`.added.json.
        """
        path = pathlib.Path(folder, f"{name}.model")
        path.write_bytes(self._model)
        content: dict[str, Any] = {}
        content |= {} if self._is_usual else {"added": [token.entry for token in self.added]}
        content |= {"cleans_up": True} if self.replaced else {}
        content |= {"ends_between": self.ends_between} if self.ends_between > 1 else {}
        if content:
            text = json.dumps(content, ensure_ascii=False) + "\n"
            pathlib.Path(folder, f"{name}.added.json").write_text(text, "utf-8")
        return path


def with_final_sigmas(strings: tf.Tensor) -> tf.Tensor:
    """Strings (B,) in which a capital sigma that ends a word becomes a final sigma, as in Python's `lower`.

    The model's own table maps single characters, so it cannot know where a word ends.
    """
    rules = (
        (rf"Σ([{MARKS}]*(?:[^{LETTERS}{MARKS}]|$))", FINAL + r"\1"),
        (rf"((?:^|[^{LETTERS}{MARKS}])[{MARKS}]*){FINAL}", r"\1Σ"),
        (FINAL, "ς"),
    )
    for pattern, value in rules:
        strings = tf.strings.regex_replace(strings, pattern, value)
    return strings


def _spelling(proto, piece) -> bytes:
    """The text of a piece of a SentencePiece model."""
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    if piece.type == kinds.UNKNOWN:
        return proto.trainer_spec.unk_surface.encode()
    if piece.type == kinds.BYTE:
        return bytes([int(piece.piece[3:-1], 16)])
    return piece.piece.replace("▁", " ").encode()
