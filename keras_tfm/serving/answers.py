"""What comes after the exported function: numbers as answers.

Each answer is a function of the outputs of an example's rows, {name: array} each, of these rows as the reader
made them, and of the example itself.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .entries import chosen
from .text_readers import as_pair
from .tokens import symbols_of

ASCII_SPACES = "\t\n\f\r "


def as_arrays(folder, labels: list[str] | None = None):
    """The outputs are the answers, beside the "labels" that they are of."""
    names = {} if labels is None else {"labels": labels}
    return lambda outputs, rows, example: {**outputs[0], **names}


def as_classes(folder, labels: list[str]):
    """The likeliest label, beside the "probabilities" of all "labels": the mean of an example's rows, which
    are clips of one video.
    """

    def finish(outputs, rows, example):
        found = {name: np.mean([output[name] for output in outputs], axis=0) for name in outputs[0]}
        return {"label": labels[int(found["probabilities"].argmax())], "labels": labels, **found}

    return finish


def as_boxes(folder, labels: list[str]):
    """The "boxes" of objects, the "labels" of their classes and the "scores", the surest first."""

    def finish(outputs, rows, example):
        (found,) = outputs
        names = [labels[int(number)] for number in found["classes"]]
        return {"boxes": found["boxes"], "labels": names, "scores": found["scores"]}

    return finish


def as_triplets(folder, labels: list[str], predicates: list[str]):
    """Triplets, the surest first: "subjects", "predicates" and "objects" by their names, the boxes of both
    and the "scores".
    """
    names = {"subjects": labels, "predicates": predicates, "objects": labels}

    def finish(outputs, rows, example):
        (found,) = outputs
        spelled = {part: [of[int(number)] for number in found[part]] for part, of in names.items()}
        return {**found, **spelled}

    return finish


def as_tags(folder, labels: list[str], outside: str):
    """The likeliest label at each word's first token, with spaces between; `outside` for words not read."""

    def finish(outputs, rows, example):
        best, (firsts, count) = outputs[0]["scores"].argmax(-1), rows[0].more
        tags = [labels[int(best[first])] for first in firsts]
        return {"tags": " ".join(tags + [outside] * (count - len(tags)))}

    return finish


def as_choice(folder):
    """The number of the likeliest choice, beside the "probabilities"."""

    def finish(outputs, rows, example):
        logits = np.array([found["score"] for found in outputs])
        probabilities = np.exp(logits - logits.max())
        return {"choice": int(logits.argmax()), "probabilities": probabilities / probabilities.sum()}

    return finish


def as_filled(folder, blank: str):
    """The text with each `blank` replaced by the likeliest token; blanks that were not read stay."""
    words = [symbol.decode("utf-8", "replace") for symbol in symbols_of(folder)]

    def finish(outputs, rows, example):
        parts = example.split(blank)
        ids = [i for found, row in zip(outputs, rows, strict=True) for i in found["ids"][: len(row.more)]]
        filled = [words[i] for i in ids] + [blank] * (len(parts) - 1 - len(ids))
        return {"text": "".join(part + word for part, word in zip(parts, [*filled, ""], strict=True))}

    return finish


def as_span(folder, longest: int, threshold: float | None):
    """The likeliest part of the context, of `longest` tokens at most, beside its probability, "score".

    It is "" where no answer is likelier by more than `threshold`; None for questions that all have one.
    """

    def finish(outputs, rows, example):
        spans = [best_span(found, row, longest) for found, row in zip(outputs, rows, strict=True)]
        score, place, probability, _, _ = max(spans, key=lambda span: span[0])
        _, _, _, null, null_probability = min(spans, key=lambda span: span[3])
        if threshold is not None and null - score > threshold:
            return {"answer": "", "score": null_probability}
        _, context = as_pair(example)
        return {"answer": trimmed(context[slice(*place)]), "score": probability}

    return finish


def best_span(found, row, longest):
    """The best span of one window: its sum of logits, its characters and its probability; and the sum of
    logits and the probability of no answer.
    """
    starts, ends = map(np.array, row.more)
    start, end = (found[side][: len(starts)].astype("float32") for side in ("start", "end"))
    is_context = ends > starts
    null, is_candidate = start[0] + end[0], np.append(True, is_context[1:])
    total = sum(np.logaddexp.reduce(x[is_candidate]) for x in (start, end))
    lowest = np.full(longest - 1, -np.inf, "float32")
    reached = np.append(np.where(is_context, end, -np.inf), lowest)
    reached = np.lib.stride_tricks.sliding_window_view(reached, longest)  # (T, longest): from each start on
    scores = np.where(is_context, start, -np.inf) + reached.max(-1)
    first = int(scores.argmax())
    place = (0, 0)
    if is_context[first]:
        place = int(starts[first]), int(ends[first + int(reached[first].argmax())])
    return scores[first], place, np.exp(scores[first] - total), null, np.exp(null - total)


def trimmed(text):
    """The text without white space at its ends."""

    def is_space(character):
        return character in ASCII_SPACES or unicodedata.category(character)[0] == "Z"

    kept = [place for place, character in enumerate(text) if not is_space(character)]
    return text[kept[0] : kept[-1] + 1] if kept else ""


class Written:
    """The "ids" that are written, as text; behind the example, which they continue, if it `repeats` that.

    The symbols of symbols.json stand side by side, without the `silent` ones, up to the id `end`. An id
    without a symbol is spelled `unknown`. `rule` says what happens to the whole: "plain" leaves it, "words"
    removes white space at both ends, "pieces" one space in front; "lossless" is "pieces" where a NUL stands
    for the sign ▁. Last, of each pair in `replaced` the first text is replaced by the second, in this order.
    """

    def __init__(
        self,
        folder,
        end: int | None,
        silent: list[int],
        unknown: str,
        rule: Literal["plain", "words", "pieces", "lossless"],
        repeats: bool,
        replaced: Sequence[tuple[str, str]] = (),
    ):
        self._symbols = symbols_of(folder)
        self._end, self._silent, self._unknown, self._rule = end, set(silent), unknown.encode(), rule
        self._repeats, self._replaced = repeats, replaced

    def __call__(self, outputs, rows, example):
        text = self.spelled(np.asarray(outputs[0]["ids"]).tolist())
        return {"text": example + text if self._repeats else text}

    def spelled(self, ids):
        """A list of ids as text."""
        kept = ids[: ids.index(self._end)] if self._end in ids else ids
        known = range(len(self._symbols))
        spelled = b"".join(
            self._symbols[token_id] if token_id in known else self._unknown
            for token_id in kept
            if token_id not in self._silent
        )
        if self._rule == "words":
            spelled = spelled.strip()
        text = spelled.decode("utf-8", "replace")
        if self._rule in ("pieces", "lossless"):
            text = text.removeprefix(" ")
        for found, value in self._replaced:
            text = text.replace(found, value)
        return text.replace("\0", "▁") if self._rule == "lossless" else text


ANSWERS: dict[str, Any] = {
    "arrays": as_arrays,
    "classes": as_classes,
    "boxes": as_boxes,
    "triplets": as_triplets,
    "tags": as_tags,
    "choice": as_choice,
    "filled": as_filled,
    "span": as_span,
    "text": Written,
}


def answer_of(folder, entries):
    """The answer whose "kind", and arguments, are these `entries`; a plugin's is made alike."""
    make, arguments = chosen(folder, ANSWERS, entries, "answers", "answer")
    return make(folder, **arguments)
