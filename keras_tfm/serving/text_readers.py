"""Readers of texts: their token ids, and for tasks that need it what stands where in a row."""

from typing import Any, Literal, NamedTuple

import numpy as np

from .examples import Refused, check, not_choices, not_pair, not_question, not_text, not_words, words_in
from .reading import Read, Reader, fitting, refused_or
from .tokens import SPANS, TOKENIZERS, made


class Text(Reader):
    """Strings as ids of tokens: an example has `parts`, of whose ids `read_ids` makes a `Read`."""

    def __init__(self, folder, tokenizer: dict):
        self.ids = made(folder, TOKENIZERS, tokenizer, "reads.tokenizer")

    def read(self, examples):
        groups = [refused_or(self.parts, example) for example in examples]
        read = [parts for parts in groups if not isinstance(parts, Refused)]
        try:
            found = iter(self.encode(read))
        except UnicodeEncodeError as error:  # one of them holds half of a character
            if len(examples) == 1:
                return [Refused(f"expected Unicode text, got {error.reason}")]
            return [read for example in examples for read in self.read([example])]
        return [
            parts if isinstance(parts, Refused) else refused_or(self.read_ids, *next(found))
            for parts in groups
        ]

    def encode(self, groups):
        """The ids of each string in `groups`, lists of them; equal ones are tokenised once."""
        texts = list(dict.fromkeys(text for parts in groups for text in parts))
        ids = dict(zip(texts, self.ids(texts), strict=True))
        return [[ids[text] for text in parts] for parts in groups]

    def parts(self, example):
        """The strings of an example; raises `Refused`."""
        check(example, not_text)
        return [example]

    def read_ids(self, *ids):
        """The `Read` of an example whose parts have these ids; raises `Refused`."""
        raise NotImplementedError


class Tokens(NamedTuple):
    """A row of token ids, of which `first` belong to the first text; `more` is what its reader knows
    besides.
    """

    ids: list[int]
    first: int
    more: Any = None


class Texts(Text):
    """Strings, or pairs of them, as ids between `start` and `end`, with the ids `between` between two
    texts; if `pairs` is None, each example is one or the other, and one tab makes two texts of a string.
    More than `max_length` tokens are cut, of two texts from the longer.
    """

    def __init__(
        self,
        folder,
        tokenizer: dict,
        inputs: list[Literal["token_ids", "segment_ids", "padding_mask"]],
        max_length: int,
        start: int,
        end: int,
        pad: int,
        between: list[int],
        pairs: bool | None = False,
    ):
        super().__init__(folder, tokenizer)
        self._inputs, self._max_length, self._pairs = inputs, max_length, pairs
        self._start, self._end, self._pad, self._between = start, end, pad, between

    def parts(self, example):
        is_single = self._pairs is None and isinstance(example, str) and example.count("\t") != 1
        if self._pairs is False or is_single:
            return super().parts(example)
        check(example, not_pair)
        return as_pair(example)

    def read_ids(self, *ids):
        row, is_cut = self.row_of(*ids)
        return Read([row], is_cut)

    def row_of(self, first, second=None):
        """The row of a text, or of two of them, from their ids, and whether these are cut."""
        room = self._max_length - 2
        if second is None:
            row = [self._start, *first[:room], self._end]
            return Tokens(row, len(row)), len(first) > room
        room -= len(self._between)
        half = room - room // 2 if len(first) > len(second) else room // 2  # as `tokenizers` cuts pairs
        kept = min(len(first), max(room - len(second), half))
        front = [self._start, *first[:kept], *self._between]
        row = [*front, *second[: room - kept], self._end]
        return Tokens(row, len(front)), len(first) + len(second) > room

    def length(self, row):
        return len(row.ids)

    def join(self, rows, widths=None):
        """Rows as {input: int32 (B, T)}."""
        width = fitting(max(map(self.length, rows)), widths)
        shape = len(rows), width
        inputs = {
            "token_ids": np.full(shape, self._pad, "int32"),
            "segment_ids": np.zeros(shape, "int32"),
            "padding_mask": np.zeros(shape, "int32"),
        }
        for number, row in enumerate(rows):
            length = len(row.ids)
            inputs["token_ids"][number, :length] = row.ids
            inputs["padding_mask"][number, :length] = 1
            inputs["segment_ids"][number, row.first : length] = 1
        return {name: inputs[name] for name in self._inputs}


def as_pair(example):
    """Two strings, which may have come as one with a tab between."""
    return example.split("\t") if isinstance(example, str) else list(example)


class Places(NamedTuple):
    """Where the first token of each word that is read stands, and how many words there are."""

    firsts: list[int]
    num_words: int


class Words(Texts):
    """Lists of words, or strings split by `words_in`: of each word's tokens the first is answered for.

    `marks` are words of their own at the ends of others, `before` is what a word is spelled with in front,
    `empty` what an empty word is read as, and `unknown` the id of a word without tokens. What a row knows
    besides is the `Places` of its words.
    """

    def __init__(self, folder, unknown: int, before: str = "", empty: str = "", marks: str = "", **options):
        super().__init__(folder, **options)
        self._unknown, self._before, self._empty, self._marks = unknown, before, empty, marks

    def parts(self, example):
        check(example, not_words)
        words = words_in(example, self._marks) if isinstance(example, str) else example
        return [self._before + word or self._empty for word in words]

    def read_ids(self, *ids):
        found: list[int] = []
        firsts: list[int] = []
        for some in ids:
            firsts.append(1 + len(found))
            found += some or [self._unknown]
        room = self._max_length - 2
        firsts = [first for first in firsts if first <= room]
        row = [self._start, *found[:room], self._end]
        return Read([Tokens(row, len(row), Places(firsts, len(ids)))], len(firsts) < len(ids))


class Choices(Texts):
    """(text, [choice, ...]), or one string with tabs between: a row for each choice, the pair of both."""

    def parts(self, example):
        check(example, not_choices)
        text, choices = as_choices(example)
        return [text, *choices]

    def read_ids(self, text, *choices):
        rows, are_cut = zip(*(self.row_of(text, choice) for choice in choices), strict=True)
        return Read(list(rows), any(are_cut))


def as_choices(example):
    """(text, [choice, ...]) of such a pair, or of one string with tabs between."""
    text, *choices = example.split("\t") if isinstance(example, str) else (example[0], *example[1])
    return text, choices


class Blanks(Texts):
    """Texts with blanks, the token `blank`: a row for every `most` of them, none for a text without.

    The input "mask_positions" (B, most) says where they stand, as does what a row knows besides.
    """

    def __init__(self, folder, blank: int, most: int, **options):
        super().__init__(folder, **options)
        self._blank, self._most = blank, most

    def read_ids(self, *ids):
        row, is_cut = self.row_of(*ids)
        places = [number for number, token_id in enumerate(row.ids) if token_id == self._blank]
        parts = [places[first : first + self._most] for first in range(0, len(places), self._most)]
        return Read([row._replace(more=part) for part in parts], is_cut)

    def join(self, rows, widths=None):
        positions = np.zeros((len(rows), self._most), "int32")
        for number, row in enumerate(rows):
            positions[number, : len(row.more)] = row.more
        return {**super().join(rows, widths), "mask_positions": positions}


class Questions(Texts):
    """(question, context), or one string with a tab between: a row for each window of the context.

    A window begins every `stride` tokens. A context is read by the tokenizer `of_context`, to which special
    tokens may be text. What a row knows besides is the first character of each token in the context, and the
    one after its last.
    """

    def __init__(self, folder, stride: int, of_context: dict, **options):
        super().__init__(folder, pairs=True, **options)
        self._stride, self._spans = stride, made(folder, SPANS, of_context, "reads.of_context")

    def encode(self, groups):
        questions = super().encode([parts[:1] for parts in groups])
        contexts = list(dict.fromkeys(context for _, context in groups))
        spans = dict(zip(contexts, self._spans(contexts), strict=True))
        return [(ids, spans[context]) for (ids,), (_, context) in zip(questions, groups, strict=True)]

    def parts(self, example):
        check(example, not_question)
        return as_pair(example)

    def read_ids(self, question, context):
        ids, spans = context
        most = self._max_length - self._stride - 2 - len(self._between)
        if len(question) > most:
            raise Refused(
                f"expected at most {most} tokens of a question, as {self._stride} of its context are read "
                f"beside it; got {len(question)}"
            )
        room = most + self._stride - len(question)
        front = [self._start, *question, *self._between]
        rows = []
        for number in range(max(1, 1 - (room - len(ids)) // self._stride)):
            part = slice(number * self._stride, number * self._stride + room)
            edges = [(0, 0)] * len(front) + spans[part] + [(0, 0)]
            starts, ends = zip(*edges, strict=True)
            rows.append(Tokens([*front, *ids[part], self._end], len(front), (starts, ends)))
        return Read(rows)


class Prompts(Text):
    """Strings as lists of ids: `before`, then the text's, then `after`; padding stands behind them.

    A text of more than `max_length` ids is cut, or refused where `cuts` is False; so is an empty one then.
    """

    def __init__(
        self, folder, tokenizer: dict, before: list[int], after: list[int], max_length: int, cuts: bool
    ):
        super().__init__(folder, tokenizer)
        self._before, self._after, self._max_length, self._cuts = before, after, max_length, cuts

    def parts(self, example):
        if not self._cuts and example == "":
            raise Refused("expected a prompt, got an empty text: there is nothing to continue")
        return super().parts(example)

    def read_ids(self, *ids):
        (ids,) = ids
        room = max(0, self._max_length - len(self._before) - len(self._after))
        if not self._cuts and len(ids) > room:
            raise Refused(f"expected a prompt of at most {room} tokens, got one of {len(ids)}")
        return Read([[*self._before, *ids[:room], *self._after]], len(ids) > room)

    def length(self, row):
        return len(row)

    def join(self, rows, widths=None):
        """Rows as {input: int32 (B, S)}, of one token at least."""
        shape = len(rows), fitting(max(1, *map(len, rows)), widths)
        inputs = {name: np.zeros(shape, "int32") for name in ("token_ids", "padding_mask")}
        for number, row in enumerate(rows):
            inputs["token_ids"][number, : len(row)] = row
            inputs["padding_mask"][number, : len(row)] = 1
        return inputs
