"""Notices a first row that holds names of columns, and columns in the order label, text, in tables of labels.

Names that no reader knows would be learnt as an example, and its label as a class.
"""

import logging
from collections import Counter
from collections.abc import Sequence

from keras_tfm.data.sources.rows import Row

LOG = logging.getLogger(__name__)

MIN_ROWS = 20  # fewer say too little
RARE = 20  # at most one in this many other rows may have a label that stands once


def refuse_names(first: Row, labels: Sequence[Sequence[str]]) -> None:
    """Raise DataError if the `first` row of a table seems to hold names of columns: its one label stands
    nowhere else and is no number, while the other labels repeat. `labels` are the labels of all its rows.
    """
    if not first.may_be_header or len(labels) < MIN_ROWS or len(labels[0]) != 1 or is_number(labels[0][0]):
        return
    counts = Counter(name for names in labels for name in set(names))
    others = sum(any(counts[name] == 1 for name in names) for names in labels[1:])
    if counts[labels[0][0]] > 1 or others * RARE > len(labels) - 1:
        return
    names = ",".join(str(cell).strip() for cell in first.cells)
    first.refuse(
        f"expected an example, but {labels[0][0]!r} is the label of no other of {len(labels):,} rows. Are "
        f"these names of columns? Then pass --columns {names[:80]}, or --header; else --no-header (in Python "
        "data.Layout)"
    )


def refuse_order(first: Row, texts: Sequence, labels: Sequence[Sequence[str]], are_chosen: bool) -> None:
    """Raise DataError if two columns taken by position seem to be a label and a text: the texts repeat as
    labels do, and the labels hardly. Columns that are chosen cost a warning.
    """
    num_texts, num_labels = len(set(texts)), len(set(map(tuple, labels)))
    is_swapped = num_texts * 5 <= len(texts) and num_labels * 2 > len(labels)
    if len(labels) < MIN_ROWS or not is_swapped:
        return
    if are_chosen:
        LOG.warning(
            "%s: the %d rows have %d different texts and %d different labels: is the text the first of the "
            "chosen columns, and the label the last?",
            first.path,
            len(labels),
            num_texts,
            num_labels,
        )
    elif first.may_be_header:
        first.refuse(
            f"expected the columns text and label, but the first has {num_texts:,} different cells in "
            f"{len(texts):,} rows, as labels have, and the second {num_labels:,}; choose the text, then the "
            "label, by name or position: --columns 1,0"
        )


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
