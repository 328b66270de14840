"""Edits of serving.json: each entry in turn has another value, or is gone."""

import copy
import json

from keras_tfm import serving

WRONG = (None, True, -1, 10**12, 0.5, float("nan"), "x", "\ud800", [], [None], {}, [[1]])


def edits(content, place=()):
    """Yield (place, copy of `content` with another value there, or with nothing) for each of its entries."""
    inner = content
    for key in place:
        inner = inner[key]
    keys = (
        list(inner)
        if isinstance(inner, dict)
        else range(min(1, len(inner)))
        if isinstance(inner, list)
        else ()
    )
    for key in keys:
        for value in (*WRONG, edits):
            changed = copy.deepcopy(content)
            holder = changed
            for step in place:
                holder = holder[step]
            if value is edits:
                del holder[key]
            else:
                holder[key] = value
            yield (*place, key), changed
        yield from edits(content, (*place, key))


FREE = ("keras_tfm", "task", "quantization", "inputs", "difference")  # no answer depends on them


def refusals(folder, content, ask):
    """How many edits of `content` are refused, by ValueErrors of one line; after all others `ask`, a function
    of the export, raises nothing else either.
    """
    refused = 0
    for place, changed in edits(content):
        if place[0] in FREE or place[0] == "files":
            continue
        (folder / "serving.json").write_text(json.dumps(changed))
        try:
            ask(serving.load(folder))
        except ValueError as error:
            refused += 1
            assert str(error).count("\n") == 0, place
        except Exception as error:
            raise AssertionError(f"{place}: {error!r}") from error
    return refused
