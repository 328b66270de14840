"""Sums and word problems with their answers: texts to learn arithmetic from, made of NumPy's random numbers.

An answer is written in one of three forms:

    source                    12+89
    "direct"                  101
    "reversed"                101, units first
    "steps", a scratch-pad    2+9+0=11 1+8+1=10 0+0+1=1: 101

A line of the scratch-pad adds the digits of one place and what is carried into it, or subtracts: "41-13"
has 11-3-0=8 4-1-1=2, whose first digit borrows the 1 before it. A word problem has a line for each of its
operations, "lines", or a scratch-pad for each, "steps". Letters may mark the places, "k1j2+k8j9",
from any letter on (the "index hints" of Zhou et al. 2024, "What Algorithms Can Transformers Learn?"): a model
that looks digits up by their letters has nothing new to learn for longer numbers.
"""

import hashlib
import string
from typing import Any, Literal, get_args

import numpy as np

from keras_tfm.data.sources.files import Pairs

Part = Literal["train", "test"]
Form = Literal["direct", "reversed", "steps"]
WordProblemForm = Literal["direct", "lines", "steps"]
LETTERS = string.ascii_lowercase
TESTED = 0.1  # share of all questions that are for testing

NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Finn", "Greta", "Hugo")
THINGS = ("apples", "books", "cards", "coins", "marbles", "pens", "stamps", "stickers")
GAINS = ("buys {}", "finds {}", "gets {} more", "is given {}", "wins {}")
LOSSES = ("gives {} away", "loses {}", "sells {}", "drops {}", "lends {} to a friend")
WORDINGS = (
    "{name} has {start} {things}, {first}, {second}. How many?",
    "{name} has {start} {things}. {name} {first} and then {second}. How many {things} does {name} have?",
    "There are {start} {things} in a box. {name} {first} and {second}. How many {things} are there now?",
    "{name} {first} and then {second}. At first {name} had {start} {things}. How many are there now?",
    "How many {things} has {name}, who had {start}, if {name} {first}, then {second}?",
)


def sum_pairs(
    num_pairs: int,
    num_digits: tuple[int, int] = (1, 5),
    form: Form = "direct",
    part: Part = "train",
    seed: int = 0,
    operations: str = "+",
    mark_places: bool = False,
) -> Pairs:
    """Random sums as pairs (question, answer).

    The longer number has a number of digits that is drawn evenly between the two `num_digits`; half of the
    shorter ones have as many, the others fewer. `operations` are "+", "-" or both; no difference is negative.
    A question that is in one `part` for some seed is in the other for none, nor with its numbers exchanged.
    ValueError for another form, part or operation, or for numbers of no digits or of more than 15.

    >>> from keras_tfm.data.worlds import sum_pairs
    >>> sum_pairs(1, (2, 2), "steps", seed=2)
    Pairs(sources=['48+70'], targets=['8+0+0=8 4+7+0=11 0+0+1=1: 118'])
    """
    shortest, longest = num_digits
    if not 1 <= shortest <= longest <= 15:
        raise ValueError(f"num_digits: expected two numbers from 1 to 15, the lower first, got {num_digits}")
    if not operations or set(operations) - set("+-"):
        raise ValueError(f"operations: expected +, - or +-, got {operations!r}")
    _check(form, "form", Form)
    _check(part, "part", Part)
    pairs, rows = Pairs([], []), _rows(seed)
    while len(pairs.sources) < num_pairs:
        row = next(rows)
        length = _between(shortest, longest, next(row))
        shorter = length if next(row) < 0.5 else _between(1, length, next(row))
        one, other = (
            _between(10 ** (n - 1) if n > 1 else 0, 10**n - 1, next(row)) for n in (length, shorter)
        )
        operation = _among(operations, next(row))
        is_descending = operation == "-" or next(row) < 0.5
        one, other = sorted((one, other), reverse=is_descending)
        first = _between(0, len(LETTERS) - 1 - length, next(row))
        key = (operation, min(one, other), max(one, other))
        if part_of(key) == part:
            marks = LETTERS[first:] if mark_places else None
            pairs.sources.append(f"{_marked(one, marks)}{operation}{_marked(other, marks)}")
            pairs.targets.append(_answer(one, operation, other, form, marks))
    return pairs


def word_problem_pairs(
    num_pairs: int,
    largest: int = 99,
    form: WordProblemForm = "direct",
    part: Part = "train",
    seed: int = 0,
) -> Pairs:
    """Random problems of two steps as pairs (problem, answer), in several wordings: "Anna has 12 apples, buys
    7, gives 5 away. How many?"

    What is there at first, and what is added, is at most `largest`; no more is taken away than is there. The
    numbers and operations of a problem in one `part` for some seed are in the other for none, in any wording.
    ValueError for another form or part, or a `largest` below 2.

    >>> from keras_tfm.data.worlds import word_problem_pairs
    >>> word_problem_pairs(1, form="lines", seed=3).targets
    ['9+80=89 89+43=132: 132']
    >>> word_problem_pairs(1, form="steps", seed=3).targets
    ['9+80: 9+0+0=9 0+8+0=8: 89; 89+43: 9+3+0=12 8+4+1=13 0+0+1=1: 132']
    """
    if largest < 2:
        raise ValueError(f"largest: expected 2 or more, got {largest}")
    _check(form, "form", WordProblemForm)
    _check(part, "part", Part)
    pairs, rows = Pairs([], []), _rows(seed)
    while len(pairs.sources) < num_pairs:
        row = next(rows)
        start = number = _between(1, largest, next(row))
        key: list[Any] = [start]
        steps, clauses = [], []
        for _ in range(2):
            is_gain = next(row) < 0.5 or number == 0
            change = _between(1, largest if is_gain else number, next(row))
            operation, verbs = ("+", GAINS) if is_gain else ("-", LOSSES)
            result = number + change if is_gain else number - change
            steps.append((number, operation, change))
            clauses.append(_among(verbs, next(row)).format(change))
            key += [operation, change]
            number = result
        name, things, wording = (_among(words, next(row)) for words in (NAMES, THINGS, WORDINGS))
        if part_of(key) == part:
            first, second = clauses
            pairs.sources.append(
                wording.format(name=name, things=things, start=start, first=first, second=second)
            )
            pairs.targets.append(_answers(steps, number, form))
    return pairs


def part_of(question: Any) -> Part:
    """The part that a question belongs to, whatever the seed: a tenth of all, by a hash, is for testing."""
    digest = hashlib.blake2b(repr(tuple(question)).encode(), digest_size=4).digest()
    return "test" if int.from_bytes(digest, "big") < TESTED * 2**32 else "train"


def final_answer(text: str) -> str:
    """An answer without its scratch-pad: what stands behind the last ": ", or all of it.

    >>> from keras_tfm.data.worlds import final_answer
    >>> final_answer("12+7=19 19-5=14: 14")
    '14'
    """
    return text.rpartition(": ")[2]


def _rows(seed):
    """Iterators over ten numbers from 0 to 1, one for each question. Drawing them in blocks is ten times as
    fast as one by one.
    """
    random = np.random.default_rng(seed)
    while True:
        yield from map(iter, random.random((256, 10)).tolist())


def _between(low, high, fraction):
    """The whole number at this `fraction` of the way from `low` to `high`, both included."""
    return low + int(fraction * (high - low + 1))


def _among(choices, fraction):
    return choices[int(fraction * len(choices))]


def _answer(one, operation, other, form, marks=None):
    number = one + other if operation == "+" else one - other
    if form == "steps":
        return f"{_steps(one, operation, other, marks)}: {_marked(number, marks)}"
    return _marked(number, marks, is_reversed=form == "reversed")


def _answers(operations, result, form):
    """A word problem's answer, from its `operations` (number, "+" or "-", number)."""
    if form == "direct":
        return str(result)
    if form == "lines":
        lines = [f"{a}{sign}{b}={_answer(a, sign, b, 'direct')}" for a, sign, b in operations]
        return f"{' '.join(lines)}: {result}"
    return "; ".join(f"{a}{sign}{b}: {_answer(a, sign, b, form)}" for a, sign, b in operations)


def _steps(one, operation, other, marks):
    """One line for each place, units first, and one for what is carried out of the last."""
    lines: list[str] = []
    carried = place = 0
    while one or other or carried or not lines:
        (one, digit), (other, less) = divmod(one, 10), divmod(other, 10)
        if operation == "+":
            result = digit + less + carried
            line, carried = f"{digit}+{less}+{carried}={result}", result // 10
        else:
            borrowed = int(digit < less + carried)
            digit += 10 * borrowed
            line, carried = f"{digit}-{less}-{carried}={digit - less - carried}", borrowed
        lines.append(marks[place] + line if marks else line)
        place += 1
    return " ".join(lines)


def _marked(number, marks, is_reversed=False):
    """The digits, each behind the letter of its place if there are `marks`, units' first."""
    places = [(marks[i] if marks else "") + digit for i, digit in enumerate(reversed(str(number)))]
    return "".join(places if is_reversed else reversed(places))


def _check(value, name, expected):
    choices = get_args(expected)
    if value not in choices:
        raise ValueError(f"{name}: expected {', '.join(choices)}, got {value!r}")
