"""The decoding loop in NumPy, around the functions "encoder" and "step" of an exported folder."""

from typing import Any, Literal, NamedTuple

import numpy as np

from .beams import BeamSearch, log_softmax
from .entries import check, checked
from .rules import Ends, Rules

SEEN = "images", "videos"  # what an encoder may read besides tokens
ROOM = 32  # positions for which there is room at first


class Sizes(NamedTuple):
    """The fixed sizes of a format: the tokens of a source, None for prompts, the entries, and the tokens of a
    step.
    """

    source: int | None
    entries: int
    tokens: list[int]


class Functions(NamedTuple):
    """What an export says of its functions.

    Args:
        reads: what "encoder" reads, "tokens" or one of `SEEN`; "prompts" where there is none.
        longest, vocabulary_size: how many ids a row may have at most, and which: those below.
        start: the ids that a text begins with, if there is an encoder.
        entries: the (heads, width) of each tensor of keys or values.
        outputs: the names of what "encoder" and "step" give.
        sizes: the tokens of a source, the entries and the tokens of a step where these are fixed, as LiteRT
            has them, otherwise None.
    """

    reads: Literal["tokens", "images", "videos", "prompts"]
    longest: int
    vocabulary_size: int
    start: list[int] | None
    entries: list[tuple[int, int]]
    outputs: dict[str, list[str]]
    sizes: dict[str, Any] | None


class StepDecoder:
    """The model in the folder "model", by a `runtime`, with keys and values in arrays of this process.

    Args:
        functions, search, rules: the arguments of `Functions`, of `BeamSearch` and of `Rules`.
        stop: strings that end a text.
    """

    def __init__(self, runtime, folder, threads, functions: dict, search: dict, rules: dict, stop: list[str]):
        self._functions = said = Functions(**checked(folder, Functions, functions, "decoding.functions"))
        checked(folder, BeamSearch, search, "decoding.search")
        checked(folder, Rules, rules, "decoding.rules")
        if not said.start and said.reads != "prompts":
            check(folder, "decoding.functions.start", said.start or None, list[int])
        for name in ("step",) if said.reads == "prompts" else ("step", "encoder"):
            check(folder, f"decoding.functions.outputs.{name}", said.outputs.get(name), list[str])
        if said.sizes is not None:
            checked(folder, Sizes, said.sizes, "decoding.functions.sizes")

        def function(name):
            run, names = runtime(folder / "model", threads, name), self._functions.outputs[name]
            return lambda inputs: dict(zip(names, run(inputs), strict=True))

        self._step = function("step")
        self._encode = None if self._functions.reads == "prompts" else function("encoder")
        self._rules = Rules(**rules)
        self._ends = Ends(folder, self._rules.end_ids, stop)
        self._search = BeamSearch(self._rules, self._ends, **search) if search["beam_size"] > 1 else None
        self.most_rows = 1 if said.sizes else None
        self.widths = [said.sizes["source"]] if said.sizes and said.reads == "tokens" else None

    def __call__(self, inputs):
        """The ids that are written for each row of the `inputs`, with the end token; ValueError, naming the
        row, if the export cannot take it.
        """
        prompts = None if self._functions.reads in SEEN else self._rows(inputs)
        cache, texts = self._begin(inputs, self._rules.max_new_tokens)
        decode, logits = self._search or self._likeliest, cache.read(*left_padded(texts))
        return decode(cache, logits, texts, prompts or texts)

    def _rows(self, inputs):
        """The ids of each row; ValueError for rows that the export cannot take."""
        rows = rows_of(inputs)
        longest, size = self._functions.longest, self._functions.vocabulary_size
        for place, row in enumerate(rows):
            if not 1 <= len(row) <= longest:
                raise ValueError(f"row {place}: expected 1 to {longest} token ids, got {len(row)}")
            if not 0 <= min(row) <= max(row) < size:
                raise ValueError(
                    f"row {place}: expected ids from 0 to {size - 1}, got {min(row)} to {max(row)}"
                )
        return rows

    def score(self, inputs, target):
        """log p of each id of the list `target`, which follow the single row of the `inputs`."""
        cache, texts = self._begin(inputs, len(target))
        logits = [cache.read(*left_padded(texts))]
        logits += [cache.read(np.array([[token_id]], "int32")) for token_id in target[:-1]]
        found = log_softmax(np.concatenate(logits))
        return np.take_along_axis(found, np.array(target)[:, None], axis=1)[:, 0]

    def _begin(self, inputs, num_new):
        """A cache that has read nothing yet, and what the texts of the rows begin with."""
        functions = self._functions
        if self._encode is None:
            texts, given = self._rows(inputs), {}
        else:
            texts = [functions.start for _ in next(iter(inputs.values()))]
            given = self._encode(inputs)
        most = max(map(len, texts)) + num_new - 1
        return Cache(self._step, functions.entries, given, len(texts), most, functions.sizes), texts

    def _likeliest(self, cache, logits, texts, prompts):
        """The continuations of `texts` by the likeliest token each time, and of equally likely ones the
        first; `prompts` are as in `Rules`.
        """
        firsts, texts = [len(text) for text in texts], [list(text) for text in texts]
        has_ended = np.zeros(len(texts), bool)
        live = np.arange(len(texts))  # the text of each row of the cache
        for number in range(self._rules.max_new_tokens):
            so_far, asked = ([ids[place] for place in live] for ids in (texts, prompts))
            chosen = self._rules(logits, so_far, number, asked).argmax(axis=-1)
            for place, token_id in zip(live, chosen.tolist(), strict=True):
                if not has_ended[place]:
                    texts[place].append(token_id)
                    has_ended[place] = self._ends(texts[place][firsts[place] :])
            left = np.flatnonzero(~has_ended[live])
            if not left.size or number + 1 == self._rules.max_new_tokens:
                break
            if 2 * left.size <= live.size:  # rows that have ended cost more than leaving them
                cache.keep(left)
                live, chosen = live[left], chosen[left]
            logits = cache.read(chosen[:, None].astype("int32"))
        return [text[first:] for first, text in zip(firsts, texts, strict=True)]


class Cache:
    """The rows that are decoded, as the model knows them: keys and values of R rows for up to `most`
    positions, (R, H, S, K) each, written in place; contexts and states.

    `given` is what the encoder gave: contexts, of which R / B neighbouring rows share one, and first states.
    """

    def __init__(self, step, entries, given, num_rows, most, sizes=None):
        self._step, self._most = step, most
        self._contexts = {name: x for name, x in given.items() if name.startswith("context")}
        self._states = {name: x for name, x in given.items() if name.startswith("state")}
        room = sizes["entries"] if sizes else 1
        self._widths = sizes["tokens"] if sizes else None
        self._past = [np.zeros((num_rows, heads, room, width), "float32") for heads, width in entries]
        self._visible = np.zeros((num_rows, room), "int32")
        self._length = 0

    def read(self, token_ids, mask=None):
        """The logits (R, V) after T more tokens, int32 (R, T); `mask` is 0 at padding, which stands in
        front.
        """
        mask = np.ones_like(token_ids) if mask is None else mask
        count = token_ids.shape[1]
        if self._widths is None or count in self._widths:
            return self._read(token_ids, mask)
        width = self._widths[-1]
        more = -count % width  # padding in front fills the first of several steps of fixed width
        token_ids, mask = (np.pad(x, ((0, 0), (more, 0))) for x in (token_ids, mask))
        for first in range(0, count + more, width):
            logits = self._read(token_ids[:, first : first + width], mask[:, first : first + width])
        return logits

    def _read(self, token_ids, mask):
        inputs = {
            "token_ids": token_ids,
            "padding_mask": mask,
            "visible": self._visible,
            "index": np.array(self._length, "int32"),
            **{f"past_{number:02}": x for number, x in enumerate(self._past)},
            **self._contexts,
            **self._states,
        }
        outputs = self._step(inputs)
        begin, self._length = self._length, self._length + token_ids.shape[1]
        self._make_room()
        for number, past in enumerate(self._past):
            past[:, :, begin : self._length] = outputs[f"new_{number:02}"]
        self._visible[:, begin : self._length] = mask
        self._states = {name: outputs[name] for name in self._states}
        return outputs["logits"]

    def _make_room(self):
        """Room for what was read and a few positions more: twice as many each time."""
        room = self._visible.shape[1]
        if self._length <= room:
            return
        while room < self._length:
            room = max(ROOM, 2 * room)
        more = max(self._length, min(room, self._most)) - self._visible.shape[1]
        self._past = [np.pad(x, ((0, 0), (0, 0), (0, more), (0, 0))) for x in self._past]
        self._visible = np.pad(self._visible, ((0, 0), (0, more)))

    def keep(self, rows):
        """Go on with these rows alone; contexts must be as many as rows."""
        self._past = [x[rows] for x in self._past]
        self._visible = self._visible[rows]
        self._contexts, self._states = (
            {name: x[rows] for name, x in given.items()} for given in (self._contexts, self._states)
        )

    def repeat(self, count):
        """Each row `count` times, side by side."""
        self._past = [np.repeat(x, count, axis=0) for x in self._past]
        self._visible = np.repeat(self._visible, count, axis=0)
        self._states = {name: np.repeat(x, count, axis=0) for name, x in self._states.items()}

    def reorder(self, rows):
        """Row r becomes what row `rows[r]` was, which has the same context."""
        moved = np.flatnonzero(rows != np.arange(len(rows)))
        for x in self._past:
            x[moved, :, : self._length] = x[rows[moved], :, : self._length]
        self._visible[moved] = self._visible[rows[moved]]
        self._states = {name: x[rows] for name, x in self._states.items()}


def rows_of(inputs):
    """The ids (B, S) without their padding, as lists."""
    masks = inputs["padding_mask"] > 0
    return [row[mask].tolist() for row, mask in zip(inputs["token_ids"], masks, strict=True)]


def left_padded(texts):
    """Lists of ids as an array, int32 (R, T), with padding in front, and the mask, 0 at padding."""
    width = max(map(len, texts))
    token_ids, mask = (np.zeros((len(texts), width), "int32") for _ in range(2))
    for number, text in enumerate(texts):
        token_ids[number, width - len(text) :] = text
        mask[number, width - len(text) :] = 1
    return token_ids, mask
