"""What comes after the exported function: numbers as answers."""

from typing import Any


def as_arrays():
    """The outputs are the answers."""
    return lambda outputs, row: outputs


def as_classes(labels):
    """The likeliest label, beside the "probabilities"."""
    return lambda outputs, row: {"label": labels[int(outputs["probabilities"].argmax())], **outputs}


def as_tags(labels, outside):
    """The likeliest label at each word's first token, with spaces between; `outside` for words not read."""

    def finish(outputs, row):
        best, firsts, count = outputs["scores"].argmax(-1), row[2], row[3]
        tags = [labels[int(best[first])] for first in firsts]
        return {"tags": " ".join(tags + [outside] * (count - len(tags)))}

    return finish


ANSWERS: dict[str, Any] = {"arrays": as_arrays, "classes": as_classes, "tags": as_tags}
