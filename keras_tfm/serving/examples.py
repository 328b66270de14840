"""What callers hand over as examples: a list of them, each of one kind, and how many are answered at once.

A function `not_KIND(example)` gives the reason why an example is not of that kind, or None.
"""

import decimal
import math
import numbers
import os
import re
from collections.abc import Mapping

import numpy as np


def listed(examples, name="examples"):
    """The `examples` as a list; ValueError, naming the argument, for a single one and for what is no list."""
    refuse_single(examples, name)
    return examples if isinstance(examples, list) else list(examples)


def refuse_empty(rows, name):
    """Raise ValueError where nothing is given to learn from or to measure; `name` is the argument's."""
    if not len(rows):
        raise ValueError(f"`{name}` must not be empty.")


def refuse_single(examples, name="examples"):
    """Raise ValueError for a single example in the place of a list, whose parts would be read as examples."""
    if isinstance(examples, str | bytes | Mapping):
        raise ValueError(
            f"{name}: expected a list, got a single one, {shown(examples)}: write [...] around it"
        )
    try:
        iter(examples)
    except TypeError:
        raise ValueError(f"{name}: expected a list, got {shown(examples)}") from None


def as_columns(examples, *names):
    """The columns of `examples` as a list; ValueError unless they are as many as their `names`, for an array,
    which is a single column, and for a list of tuples that may as well be rows.
    """
    try:
        columns = [] if isinstance(examples, np.ndarray) else list(listed(examples))
    except ValueError:
        columns = []
    are_rows = bool(columns) and all(isinstance(x, list | tuple) and len(x) == len(names) for x in columns)
    may_be_rows = are_rows and isinstance(examples, list) and isinstance(columns[0], tuple)
    if len(columns) != len(names) or may_be_rows:
        hint = "; are these rows? Then pass zip(*rows), else columns that are lists" if are_rows else ""
        raise ValueError(f"examples: expected ({', '.join(names)}), got {shown(examples)}{hint}")
    return columns


def checked_columns(examples, **kinds):
    """The columns of `examples`, each of a kind, a function such as `not_text`, by its name; ValueError for a
    value of another kind, and unless all columns have one length.
    """
    columns = dict(zip(kinds, as_columns(examples, *kinds), strict=True))
    for name, column in columns.items():
        check_column(column, name, kinds[name])
    refuse_unequal(**columns)
    return list(columns.values())


def refuse_unequal(**columns):
    """Raise ValueError unless all `columns`, by their names, have one length."""
    lengths = [len(column) for column in columns.values()]
    if len(set(lengths)) > 1:
        (*names, name), (*counts, count) = columns, map(str, lengths)
        expected = f"{', '.join(names)} and {name} of one length"
        raise ValueError(f"examples: expected {expected}, got {', '.join(counts)} and {count}")


def refuse_unknown(given, known, name):
    """Raise ValueError if what is `given` in the column of this `name` is not all among the `known`."""
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"`{name}` must be among {list(known)}; {unknown[0]!r} is not.")


def check_batch_size(batch_size):
    """Raise ValueError unless `batch_size` is a whole number from 1 on."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise ValueError(f"`batch_size` must be a whole number of at least 1; it is {shown(batch_size)}.")


def reasons(examples, kind):
    """{row: reason} of those `examples` that are not of a `kind`, a function such as `not_text`."""
    return {row: reason for row, example in enumerate(examples) if (reason := kind(example)) is not None}


def refuse_rows(refusals):
    """Raise ValueError for the first of the `refusals`, {row: reason}, if there are any."""
    for row, reason in refusals.items():
        others = f" ({len(refusals) - 1:,} more rows cannot be answered)" if len(refusals) > 1 else ""
        raise ValueError(f"row {row}: {reason}{others}")


def check_column(values, name, kind):
    """Raise ValueError for the first of `values` that is not of its `kind`; `name` is the column's."""
    refuse_single(values, f"`{name}`")
    for row, reason in reasons(values, kind).items():
        raise ValueError(f"`{name}`, row {row}: {reason}")


def as_numbers(values, name):
    """The `values` as an array of float64; ValueError, naming its row, for what is no number, as a string."""
    refuse_single(values, f"`{name}`")
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        check_column(values, name, not_number)
    return array.astype("float64")


class Refused(ValueError):
    """Why an example has no answer."""


def check(example, kind):
    """Raise `Refused` for an example that is not of its `kind`."""
    if (reason := kind(example)) is not None:
        raise Refused(reason)


def not_text(example):
    """A text is a string."""
    return None if isinstance(example, str) else f"expected a string, got {shown(example)}"


def not_pair(example, what="a pair of texts"):
    """A pair is two strings, or one with a tab between."""
    parts = example.split("\t") if isinstance(example, str) else example
    if is_texts(parts) and len(parts) == 2:
        return None
    return f"expected {what}: two strings, or one with a tab between; got {shown(example)}"


def not_question(example):
    """A question stands with its context: two strings, or one with a tab between."""
    return not_pair(example, "a question and a context")


def not_text_or_pair(example):
    """A text is a string, a pair a list or tuple of two."""
    if isinstance(example, str) or (is_texts(example) and len(example) == 2):
        return None
    return f"expected a text, or a pair of them, got {shown(example)}"


def not_texts(example):
    """Texts are a list, a tuple or a vector of strings."""
    return None if is_texts(example) else f"expected a list of strings, got {shown(example)}"


def not_answers(example):
    """Answers are a list of (text, the index of its first character)."""
    is_list = isinstance(example, list | tuple) and all(
        isinstance(answer, list | tuple)
        and len(answer) == 2
        and not (not_text(answer[0]) or not_whole(answer[1]))
        for answer in example
    )
    return None if is_list else f"expected a list of answers (text, start), got {shown(example)}"


def not_words(example):
    """Words are a list of strings, or one string that is split at white space."""
    return None if isinstance(example, str) else not_texts(example)


def not_choices(example):
    """Choices are (text, [choice, ...]) with two of them or more, or one string with tabs between."""
    if isinstance(example, str):
        count = example.count("\t")
    elif (
        isinstance(example, list | tuple)
        and len(example) == 2
        and isinstance(example[0], str)
        and is_texts(example[1])
    ):
        count = len(example[1])
    else:
        return f"expected (text, choices), or a string with tabs between, got {shown(example)}"
    return None if count >= 2 else f"expected two choices or more, got {count}"


def not_number(example):
    """A number is finite."""
    is_number = isinstance(example, numbers.Real | decimal.Decimal) and math.isfinite(example)
    return None if is_number else f"expected a finite number, got {shown(example)}"


def not_whole(example):
    """A whole number is an integer, Python's or NumPy's, and neither True nor False."""
    is_whole = isinstance(example, numbers.Integral) and not isinstance(example, bool)
    return None if is_whole else f"expected a whole number, got {shown(example)}"


def not_id(example):
    """An id is a string, or a number."""
    is_id = isinstance(example, str) or not_number(example) is None
    return None if is_id else f"expected an id, a string or a number, got {shown(example)}"


def not_list(example):
    """A list is whatever has a length."""
    return None if hasattr(example, "__len__") else f"expected a list, got {shown(example)}"


def is_file(example):
    """Whether an example is a file, given by its path or its bytes."""
    return isinstance(example, str | bytes) or hasattr(example, "__fspath__")


def not_image(example):
    """An image is a file, given by its path or its bytes, or an array (H, W) or (H, W, C) of 8-bit values or
    of floats from 0 to 1.
    """
    if is_file(example):
        return None
    try:
        array = np.asarray(example)
    except ValueError:  # lists of several lengths
        array = np.zeros(0)
    if array.ndim not in (2, 3):
        return f"expected an image, an array or a file's path or bytes, got {shown(example)}"
    if not array.size:
        return f"expected an image with pixels, got the shape {array.shape}"
    if array.dtype == np.uint8:
        return None
    if array.dtype.kind == "f" and array.min() >= 0 and array.max() <= 1:
        return None
    span = f" from {array.min()} to {array.max()}" if array.dtype.kind in "biuf" else ""
    return f"expected an image of uint8 from 0 to 255, or of floats from 0 to 1, got {array.dtype}{span}"


def not_in_memory(example):
    """Bytes and arrays are in memory; a path, also one among the files of frames, is of a file to open."""
    parts = example if isinstance(example, list | tuple) else [example]
    if any(isinstance(part, str | os.PathLike) for part in parts):
        return f"expected bytes or an array, no paths, got {shown(example)}"
    return None


def not_video(example):
    """A video is a file, given by its path or its bytes, a folder of frames, a list of the frames' files, or
    an array (T, H, W) or (T, H, W, C) of 8-bit values or of floats from 0 to 1.
    """
    if is_file(example) or (isinstance(example, list) and example and all(map(is_file, example))):
        return None
    shape = np.shape(example) if isinstance(example, np.ndarray) else ()
    if len(shape) not in (3, 4):
        return f"expected a video, an array (T, H, W, C), a file or a folder of frames, got {shown(example)}"
    return not_image(example[0]) if len(example) else "expected two frames or more, there are none"


def not_cloud(example):
    """A cloud of points is a file, given by its path or its bytes, or an array (N, 3) of finite numbers."""
    if is_file(example):
        return None
    return not_points(example, 3, "points, an array (N, 3) or a file's path or bytes")


def not_joints(example):
    """The joints of a pose in an image are an array (J, 2) of finite numbers."""
    return not_points(example, 2, "the places of joints in an image, an array (J, 2)")


def not_points(example, coordinates, what):
    """Points are an array (N, `coordinates`) of finite numbers; `what` is expected, in words."""
    try:
        array = np.asarray(example)
    except ValueError:  # lists of several lengths
        array = np.zeros(0)
    if array.ndim != 2 or array.shape[1] != coordinates or array.dtype.kind not in "iuf":
        return f"expected {what}, got {shown(example)}"
    if not len(array):
        return "expected points, there are none"
    are_finite = np.isfinite(array).all(axis=1)
    if are_finite.all():
        return None
    place = int(are_finite.argmin())
    return f"expected finite coordinates, point {place} is {tuple(array[place].tolist())}"


MOST_MARKS = 3  # runs of marks that are split off at each end of a word: ." is two


def words_in(text, marks=""):
    """The words of a text: what white space separates, less the `marks` at its ends, which are words of their
    own, as are several of the same mark (...).
    """
    for pattern, spaced in apart(marks):
        text = re.sub(pattern, spaced, text, flags=re.ASCII)
    return text.split()


def apart(marks):
    """[(pattern, replacement)] that one after another put spaces between words and the `marks` at their ends;
    Python and RE2, TensorFlow's, read them alike.
    """
    once, white = [], r"\t-\r "  # RE2's \s has no vertical tab
    for mark in map(re.escape, marks):
        once.append((rf"(^|[{white}])({mark}+)([^{white}{mark}])", r"\1\2 \3"))
        once.append((rf"([^{white}{mark}])({mark}+)([{white}]|$)", r"\1 \2\3"))
    return once * MOST_MARKS


def is_texts(value):
    """Whether `value` is a sequence of strings, and no string."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.ndim == 1 else None
    return isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)


def shown(value):
    """A short text for any `value`, without writing a large one out."""
    if isinstance(value, str | bytes):
        return repr(value[:40]) + ("..." if len(value) > 40 else "")
    if value is None or isinstance(value, bool | int | float | np.generic):
        return repr(value)
    kind = type(value).__name__
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{kind} of the shape {tuple(shape)}"
    return f"{kind} of {len(value)}" if hasattr(value, "__len__") else kind
