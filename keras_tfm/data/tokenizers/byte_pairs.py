"""GPT-2's tokenizer in a TensorFlow graph: byte-level byte-pair encoding (Radford et al. 2019, section 2.2).

Any text is a sequence of bytes, so that nothing is unknown and `detokenize(tokenize(text)) == text`.
A text is first split into words (by one of the rules in `splitting.py`), whose bytes are then merged, the
earliest merge first (Sennrich et al. 2016).
"""

import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.tokenizers.added import (
    FLAGS,
    MARK,
    NUL,
    AddedToken,
    AddedTokens,
    Spans,
    appended,
    in_order,
    one_each,
    special_tokens,
)
from keras_tfm.data.tokenizers.byte_pair_kinds import (
    END,
    published_options,
    special_of,
    transformers_names,
    usual_added,
)
from keras_tfm.data.tokenizers.kernels import sentencepiece_kernel
from keras_tfm.data.tokenizers.merges import (
    NAMES,
    WholeTokens,
    by_id,
    joined,
    merging_model,
    ranks_of,
    read_content,
    read_files,
)
from keras_tfm.data.tokenizers.offsets import at_source, composed, encoded_size, original_offsets
from keras_tfm.data.tokenizers.published import Published, write_options
from keras_tfm.data.tokenizers.splitting import GPT2, QWEN2, RULES, Rules, read_rules, use_rules
from keras_tfm.data.tokenizers.tokenizer import Tokenizer, beside, merged
from keras_tfm.data.tokenizers.unigram import require_size
from keras_tfm.serving.examples import refuse_single


class ByteLevelTokenizer(Tokenizer):
    """Byte-level byte-pair encoding (Radford et al. 2019, section 2.2).

    No text is unknown, and `detokenize` restores it exactly. GPT-2's "<|endoftext|>" serves as padding, start
    and end. Malformed UTF-8 is read as U+FFFD, and written as U+FFFD where tokens yield it. With the `rules`
    of Llama 3, Qwen2 or Mistral, special tokens are found in texts, and `detokenize` omits them.

    Args:
        tokens: the vocabulary by id, bytes spelled by GPT-2's characters ("Ġ" is a space), as in vocab.json.
        merges: pairs "a b", the earliest first, as in merges.txt.
        added: the added tokens (`AddedToken`, or entries of tokenizer.json); tokens that are not in `tokens`
            follow it, in the order of their ids. By default RoBERTa's or DeBERTa's special tokens.
        prefix_space: whether a space is put before a text, and before what follows an added token, if it does
            not begin with one.
        roles: other tokens for padding, start, end or unknown than GPT-2's, {"pad": "[PAD]"} for example.
        rules: others than GPT-2's: {"split": "llama3", "qwen2" or "tekken"}, which needs the role "end", and
            beside it {"normalizer": "NFC"} or {"ignore_merges": True}: a word that is a token is not merged.

    Raises:
        ValueError: if a byte, a special token or the result of a merge is not in the vocabulary, or an added
            token has another id or cannot be found as the `tokenizers` library finds it.

    >>> tokenizer = keras_tfm.data.ByteLevelTokenizer.train(["low lower lowest"] * 9, vocabulary_size=270)
    >>> token_ids = tokenizer.tokenize(["slower 🙂"])
    >>> tokenizer.detokenize(token_ids).numpy()[0].decode()
    'slower 🙂'
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        added: Iterable[AddedToken | Mapping] | None = None,
        prefix_space: bool = False,
        roles: Mapping[str, str] | None = None,
        rules: Mapping[str, Any] | None = None,
    ):
        super().__init__(name="byte_level_tokenizer")
        self._rules = obeyed = Rules.of(rules or {})
        if prefix_space and obeyed != GPT2:
            raise ValueError(f"prefix_space: expected False for texts split as {obeyed.split}'s, got True")
        added = None if added is None else in_order(added)
        tokens, pairs = list(tokens), [tuple(merge.split(" ")) for merge in merges]
        tokens += appended(added or [], tokens)
        known, made = set(tokens), ranks_of(merges)
        if len({"", *tokens}) != 1 + len(tokens):
            raise ValueError("tokens: expected different ones, none of them empty")
        self._special = special = special_of(known, roles or {}, obeyed)
        if missing := {*NAMES, *made}.union(*pairs) - known:
            raise ValueError(
                f"tokens: expected every byte and all merged tokens; {min(missing)!r} is missing"
            )
        surplus = known - {*NAMES, *made}
        own = {END} if obeyed == GPT2 else {*special.names}
        if special.mask is None and (whole := surplus - own - {token.content for token in added or ()}):
            if obeyed == GPT2:
                raise ValueError(f"tokens: expected a merge that gives {min(whole)!r}, got none")
            surplus -= whole
        usual = usual_added(special, tokens, obeyed)
        added = usual if added is None else added
        if obeyed != GPT2 and (text := {*special.names} - {token.content for token in added}):
            raise ValueError(f"roles: expected added tokens, got {min(text)!r}")
        self.vocabulary_size = self.unknown_id = len(tokens)
        self.pad_id, self.start_id, self.end_id = map(tokens.index, special[:3])
        self.blank, self.ends_between = special.mask, special.ends_between
        self.mask_id = None if special.mask is None else tokens.index(special.mask)
        apart = surplus - {token.content for token in added if not token.special}
        self.special_ids = tuple(i for i, token in enumerate(tokens) if token in apart)
        self.begins_word = tf.constant([token.startswith("Ġ") for token in tokens])
        normal = self._composed_contents
        self._added = AddedTokens(added, normal)
        self._added_to_texts = AddedTokens((x for x in added if x.content not in special.names), normal)
        self._prefix_space = prefix_space
        # Kept as text, since tf.Module wraps the lists among its attributes.
        content: dict[str, Any] = {"tokens": tokens, "merges": list(merges)}
        content |= {} if added == usual else {"added": [token.entry for token in added]}
        content |= {"prefix_space": True} if prefix_space else {}
        content |= {"roles": dict(roles)} if roles else {}
        content |= {"rules": obeyed.entries} if obeyed != GPT2 else {}
        self._content = json.dumps(content, ensure_ascii=False)
        byte_of = {name: bytes([byte]) for byte, name in enumerate(NAMES)}
        silent = special[:3] if obeyed == GPT2 else ()
        raw = surplus | {token for token in known if not byte_of.keys() >= {*token}}
        spelled = [
            b"" if t in silent else t.encode() if t in raw else b"".join(byte_of[name] for name in t)
            for t in tokens
        ]
        self._spelled = np.array([*spelled, "\ufffd".encode()], object)
        self._names = np.array([name.encode() for name in NAMES], object)
        model = merging_model(tokens, made)
        self._pieces = sentencepiece_kernel(model, tf.int32)
        ordinary = {token: i for i, token in enumerate(tokens) if token not in surplus}
        self._whole = WholeTokens(ordinary) if obeyed.ignore_merges else None
        self._num_ordinary = 1 + max(ordinary.values())

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary_size: int = 8000) -> "ByteLevelTokenizer":
        """Learn merges from `lines`; `vocabulary_size`, at least 257, is an upper bound."""
        import tokenizers  # imported here, since only training needs it

        require_size(vocabulary_size, least=257)
        model = tokenizers.Tokenizer(tokenizers.models.BPE())
        model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocabulary_size,
            special_tokens=[END],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        refuse_single(lines, "lines")
        model.train_from_iterator(lines, trainer)
        learnt = json.loads(model.to_str())["model"]
        return cls(by_id(learnt["vocab"]), [" ".join(pair) for pair in learnt["merges"]])

    @classmethod
    def from_files(cls, vocabulary, merges) -> "ByteLevelTokenizer":
        """Read a vocab.json {token: id} and a merges.txt; ValueError for other content."""
        return cls(*read_files(vocabulary, merges))

    @classmethod
    def from_huggingface(cls, folder) -> "ByteLevelTokenizer":
        """Read the tokenizer.json, or vocab.json and merges.txt, of a folder of `transformers`.

        Raises DataError unless it is a byte-level tokenizer like GPT-2's, Llama 3's, Qwen2's or Mistral's.
        """
        published = Published(folder)
        path = published.folder / "tokenizer.json"
        try:
            rules = of_class = QWEN2 if published.splits_as_qwen2() else GPT2
            if path.exists():
                rules = read_rules(published.content, published.is_general)
                tokens, merges = read_content(published.content)
            else:
                path = published.folder
                tokens, merges = read_files(path / "vocab.json", path / "merges.txt")
            if rules != of_class and not published.is_general:
                raise ValueError(f"expected the rules of its class, {of_class.entries}, got {rules.entries}")
            return cls(tokens, merges, **published_options(published, tokens, rules))
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            kinds = "GPT-2's kind, Llama 3's, Qwen2's or Mistral's"
            raise DataError(path, None, f"no tokenizer of {kinds} ({error})") from None

    def with_prefix_space(self) -> "ByteLevelTokenizer":
        """The tokenizer that puts a space before texts that do not begin with one."""
        return self if self._prefix_space else type(self)(**self.content | {"prefix_space": True})

    def save_huggingface(self, folder, add_start: bool = False):
        """Write tokenizer.json and tokenizer_config.json into `folder`, as `transformers` reads them.

        With `add_start` a text begins with the start token. Tokenizers with a mask token always put the start
        and the end token around it.
        """
        import tokenizers

        content, rules = json.loads(self._content), self._rules
        tokens = content["tokens"]
        ids = {token: number for number, token in enumerate(tokens)}
        if rules != GPT2:  # the library would find an added token of its model as a word, too
            ids = {token: i for token, i in ids.items() if i < self._num_ordinary}
        pairs = [tuple(merge.split(" ")) for merge in content["merges"]]
        model = tokenizers.models.BPE(ids, pairs, ignore_merges=rules.ignore_merges)
        whole = tokenizers.Tokenizer(model)
        use_rules(whole, rules, self._prefix_space)
        whole.decoder = tokenizers.decoders.ByteLevel()
        special = self._special
        found = {token.content for token in self.added}
        silent = [name for name in special.names if special.mask is None and name not in found]
        for token in in_order([*self.added, *special_tokens(silent, tokens)]):
            flags = {name: getattr(token, name) for name in FLAGS}
            whole.add_tokens([tokenizers.AddedToken(token.content, **flags)])
        start, end = ((name, tokens.index(name)) for name in (special.start, special.end))
        if special.mask is not None:
            between = " ".join([special.end] * self.ends_between)
            whole.post_processor = tokenizers.processors.TemplateProcessing(
                single=f"{special.start} $A {special.end}",
                pair=f"{special.start} $A {between} $B {special.end}",
                special_tokens=[start, end],
            )
        elif add_start:
            whole.post_processor = tokenizers.processors.TemplateProcessing(
                single=f"{special.start} $A", pair=f"{special.start} $A $B", special_tokens=[start]
            )
        whole.save(str(pathlib.Path(folder, "tokenizer.json")))
        options = transformers_names(special, content.get("roles", {}), rules)
        options |= {"add_prefix_space": self._prefix_space}
        write_options(options | ({"add_bos_token": True} if add_start else {}), folder)

    def tokenize_words(self, words) -> tf.RaggedTensor:
        words = self._prepared(words)
        return self._added.tokenize(tf.where(words == "", " ", words), self._tokenize_word, self._composed)

    @property
    def ordinary(self) -> tuple[str, ...]:
        return tuple(self._special.names)

    @property
    def silent_ids(self) -> tuple[int, ...]:
        """Padding and start; by other rules than GPT-2's all special tokens."""
        special = () if self._rules == GPT2 else self.special_ids
        return tuple(dict.fromkeys((*super().silent_ids, *special)))

    @property
    def content(self) -> dict[str, Any]:
        """The constructor's arguments as JSON values."""
        return json.loads(self._content)

    @property
    def special_tokens(self) -> list[str]:
        """The distinct special tokens: padding, start, end, unknown and the mask."""
        return self._special.names

    @property
    def tokens(self) -> list[str]:
        """The tokens by id; bytes are shown as characters where they form whole ones."""
        names = []
        for name, spelled in zip(self.content["tokens"], self.symbols, strict=True):
            text = spelled.decode("utf-8", "replace").replace(" ", "Ġ")
            names.append(text if text.isprintable() and "\ufffd" not in text else name)
        return names

    @property
    def symbols(self) -> list[bytes]:
        """The bytes of each token: the `symbols` of `generation.StopSequences`."""
        return self._spelled[:-1].tolist()

    def tokenize(self, strings) -> tf.RaggedTensor:
        return self._added.tokenize(self._prepared(strings), self._tokenize, self._composed)

    def tokenize_with_offsets(self, strings) -> Spans:
        strings = tf.convert_to_tensor(strings, tf.string)
        # The two marks are replaced by a character of the same number of bytes, so that offsets stay right.
        texts = tf.strings.regex_replace(strings, f"{MARK}|{NUL}", chr(0x10FFFD))
        texts = tf.strings.regex_replace(texts, r"\x00", NUL)
        read = self._tokenize_part_with_offsets
        token_ids, starts, ends = self._added_to_texts.tokenize_with_offsets(
            texts, lambda parts: self._composed_with_offsets(parts, read), self._composed_with_offsets
        )
        points, characters = tf.strings.unicode_decode_with_offsets(strings, "UTF-8")  # (B, characters)
        points = points.with_flat_values(tf.where(points.flat_values == 0, ord(NUL), points.flat_values))
        sizes = points.with_flat_values(encoded_size(points.flat_values))
        lengths = tf.cast(tf.strings.length(strings), tf.int64)
        return token_ids, *original_offsets(starts, ends, characters, sizes, lengths)

    def _tokenize_part_with_offsets(self, texts) -> Spans:
        """The same of texts (B,) without added tokens, in which `NUL` stands for a byte 0."""
        token_ids = self._tokenize(texts)
        sizes = tf.constant([len(x) for x in self._spelled], tf.int64)
        sizes = token_ids.with_flat_values(tf.gather(sizes, token_ids.flat_values))
        before = tf.cumsum(tf.reduce_sum(sizes, axis=1), exclusive=True)  # (B,)
        ends = sizes.with_flat_values(tf.cumsum(sizes.flat_values) - tf.gather(before, sizes.value_rowids()))
        starts = ends - sizes
        if self._prefix_space:  # a space that was put before the text belongs to its first byte
            shift = tf.cast(_with_space(texts) != texts, tf.int64)[:, None]
            starts, ends = tf.maximum(starts - shift, 0), tf.maximum(ends - shift, 1)
        points, characters = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")  # (B, characters)
        widths = tf.where(
            points.flat_values == ord(NUL), tf.constant(1, tf.int64), encoded_size(points.flat_values)
        )
        lengths = tf.cast(tf.strings.length(texts), tf.int64)
        widths = points.with_flat_values(widths)
        return token_ids, *original_offsets(starts, ends, characters, widths, lengths)

    def _prepared(self, strings) -> tf.Tensor:
        """The strings as valid UTF-8, with `NUL` for the byte 0."""
        strings = tf.convert_to_tensor(strings, tf.string)
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", replace_control_characters=False)
        return tf.strings.regex_replace(strings, r"\x00", NUL)

    def _tokenize(self, strings) -> tf.RaggedTensor:
        """Texts (B,) without added tokens and the byte 0, as ids (B, None)."""
        return self._tokenize_word(strings) if self._prefix_space else self._tokenize_as_is(strings)

    def _tokenize_word(self, strings) -> tf.RaggedTensor:
        return self._tokenize_as_is(_with_space(strings))

    def _tokenize_as_is(self, strings) -> tf.RaggedTensor:
        words = RULES[self._rules.split].split(self._composed(strings))
        letters = tf.strings.bytes_split(tf.strings.regex_replace(words.flat_values, NUL, "\0"))
        names = joined(letters.with_flat_values(self._spell(letters.flat_values)))
        if self._whole is None:
            return merged(words.with_flat_values(self._pieces().tokenize(names) - 1))
        token_ids = self._whole(names)
        pieces = self._pieces().tokenize(tf.where(token_ids >= 0, "", names)) - 1
        return merged(words.with_flat_values(beside(one_each(token_ids, token_ids), pieces)))

    def _composed(self, strings) -> tf.Tensor:
        """Strings (B,) as the rules normalise them."""
        if self._rules.normalizer is None:
            return strings
        from keras_tfm.private.tensorflow_text import tf_text

        return tf_text.normalize_utf8(strings, self._rules.normalizer)

    def _composed_contents(self, contents: list[str]) -> list[str]:
        return [text.decode() for text in tf.convert_to_tensor(self._composed(contents)).numpy()]

    def _composed_with_offsets(self, strings, read: Callable[[tf.Tensor], Spans]) -> Spans:
        """What `read` gives for normalised strings, with the offsets in the `strings` (B,)."""
        if self._rules.normalizer is None:
            return read(strings)
        texts, sources = composed(strings)
        token_ids, *offsets = read(texts)
        starts, ends = (at_source(sources, x) for x in offsets)
        return token_ids, starts, ends

    def _spell(self, letters):
        """GPT-2's names of single bytes (N,)."""
        codes = tf.reshape(tf.io.decode_raw(letters, tf.uint8, fixed_length=1), [-1])
        return tf.gather(tf.constant(self._names), tf.cast(codes, tf.int32))

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        spelled = tf.gather(tf.constant(self._spelled), token_ids.flat_values)
        strings = joined(token_ids.with_flat_values(spelled))
        return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", replace_control_characters=False)

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        path = pathlib.Path(folder, f"{name}.bytes.json")
        path.write_text(self._content + "\n", "utf-8")
        return path


def _with_space(texts: tf.Tensor) -> tf.Tensor:
    """Texts with a space in front, unless they begin with one or are empty."""
    return tf.strings.regex_replace(texts, "^[^ ]", r" \0", replace_global=False)
