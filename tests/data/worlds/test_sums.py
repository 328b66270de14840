"""Sums and word problems: every answer and every line of a scratch-pad is true, and parts never overlap."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data.worlds.sums import (
    GAINS,
    LOSSES,
    WORDINGS,
    final_answer,
    part_of,
    sum_pairs,
    word_problem_pairs,
)

PARTS = st.sampled_from(["train", "test"])
SEEDS = st.integers(0, 2**32)


def value(expression):
    """The value of a sum such as "12+7-5"."""
    assert re.fullmatch(r"\d+([+-]\d+)*", expression)
    return sum(int(term) for term in re.findall(r"[+-]?\d+", expression))


def check_lines(scratch_pad):
    for line in scratch_pad.split():
        left, right = line.split("=")
        assert value(left) == int(right)


@given(st.integers(1, 15), st.integers(0, 4), PARTS, SEEDS, st.sampled_from(["+", "-", "+-"]))
def test_sums_are_true_in_every_form(longest, less, part, seed, operations):
    drawn = {"num_digits": (max(1, longest - less), longest), "part": part, "seed": seed}
    (sources, answers), from_units, steps = (
        sum_pairs(3, form=form, operations=operations, **drawn) for form in ("direct", "reversed", "steps")
    )
    assert from_units == (sources, [answer[::-1] for answer in answers]) and steps.sources == sources
    for source, answer in zip(sources, answers, strict=True):
        assert value(source) == int(answer) >= 0
        digits = max(len(number) for number in re.findall(r"\d+", source))
        assert drawn["num_digits"][0] <= digits <= longest
    for answer, text in zip(answers, steps.targets, strict=True):
        assert final_answer(text) == answer
        lines = text.partition(": ")[0]
        check_lines(lines)
        units_first = "".join(line[-1] for line in lines.split())
        assert int(units_first[::-1]) == int(answer)  # a difference may end in lines of nought


@given(st.integers(1, 15), SEEDS, st.sampled_from(["direct", "reversed", "steps"]))
def test_marks_name_the_places_and_change_nothing_else(longest, seed, form):
    drawn = {"num_digits": (1, longest), "form": form, "seed": seed, "operations": "+-"}
    plain, marked = sum_pairs(4, **drawn), sum_pairs(4, mark_places=True, **drawn)
    for side, other in zip(plain, marked, strict=True):
        assert [re.sub("[a-z]", "", text) for text in other] == side
    for source, target in zip(*marked, strict=True):
        one, other = (re.findall("[a-z]", number) for number in re.split("[+-]", source))
        assert one[-1] == other[-1]
        for letters in (one, other):
            ordinals = [ord(letter) for letter in letters]
            assert ordinals == list(range(ordinals[0], ordinals[0] - len(ordinals), -1))
        answer = re.findall("[a-z]", final_answer(target))
        assert (answer[0] if form == "reversed" else answer[-1]) == one[-1]


@given(st.integers(2, 10_000), PARTS, SEEDS)
def test_word_problems_are_true_in_every_form(largest, part, seed):
    sources, answers = word_problem_pairs(3, largest, part=part, seed=seed)
    other_sources, lines = word_problem_pairs(3, largest, "lines", part, seed)
    assert other_sources == sources and [final_answer(text) for text in lines] == answers
    for source, answer, text in zip(sources, answers, lines, strict=True):
        text = text.partition(": ")[0]
        check_lines(text)
        first, second = text.split()
        assert re.split("[+-]", second)[0] == first.split("=")[1] and second.split("=")[1] == answer
        start, one, _, _, other, _ = (int(number) for number in re.findall(r"\d+", text))
        assert sorted(int(n) for n in re.findall(r"\d+", source)) == sorted([start, one, other])
        assert 1 <= start <= largest


@given(st.integers(2, 10_000), SEEDS)
def test_each_operation_of_a_word_problem_has_a_scratch_pad_of_its_own(largest, seed):
    lines = word_problem_pairs(3, largest, "lines", seed=seed).targets
    for text, steps in zip(lines, word_problem_pairs(3, largest, "steps", seed=seed).targets, strict=True):
        questions = []
        for operation in steps.split("; "):
            question, scratch_pad, answer = operation.split(": ")
            check_lines(scratch_pad)
            units_first = "".join(line[-1] for line in scratch_pad.split())
            assert int(units_first[::-1]) == int(answer) == value(question)
            questions.append(f"{question}={answer}")
        assert text == f"{' '.join(questions)}: {final_answer(steps)}"


def read_problem(text):
    """The answer, read off the words alone, by other means than they were written by."""
    changes = [
        (match.start(), sign * int(match[1]))
        for sign, verbs in ((1, GAINS), (-1, LOSSES))
        for verb in verbs
        for match in re.finditer(verb.format(r"(\d+)"), text)
    ]
    assert len(changes) == 2
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    for _, change in changes:
        numbers.remove(abs(change))
    return numbers[0] + sum(change for _, change in changes)


def test_the_words_say_what_is_computed_in_every_wording():
    sources, answers = word_problem_pairs(400, seed=4)
    assert [read_problem(source) for source in sources] == [int(answer) for answer in answers]
    heads = [re.split(r"\{", wording.replace("{name} ", "", 1))[0] for wording in WORDINGS]
    assert len(set(heads)) >= 4
    example = WORDINGS[0].format(
        name="Anna", start=12, things="apples", first="buys 7", second="gives 5 away"
    )
    assert example == "Anna has 12 apples, buys 7, gives 5 away. How many?"


def test_parts_never_overlap_whatever_the_seeds():
    def questions(part, seed):
        sources = sum_pairs(3_000, (1, 2), part=part, seed=seed).sources
        return {tuple(sorted(source.split("+"), key=int)) for source in sources}

    train = questions("train", 1) | questions("train", 2)
    test = questions("test", 1) | questions("test", 3)
    assert len(train) > 1_000 and len(test) > 100 and not train & test

    def problems(part, seed):
        texts = word_problem_pairs(2_000, 6, "lines", part, seed).targets
        return {re.sub(r"=\d+", "", text.partition(": ")[0]) for text in texts}

    train, test = problems("train", 1), problems("test", 1)
    assert len(train) > 200 and len(test) > 20 and not train & test


def test_a_tenth_is_for_testing_of_every_last_digit():
    for last in range(10):
        share = sum(part_of(("+", last, 10 * n + last)) == "test" for n in range(4_000)) / 4_000
        assert abs(share - 0.1) < 0.03


def test_pairs_are_reproducible():
    assert sum_pairs(50, seed=3) == sum_pairs(50, seed=3) != sum_pairs(50, seed=4)
    assert word_problem_pairs(50, seed=3) == word_problem_pairs(50, seed=3) != word_problem_pairs(50, seed=4)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ({"num_digits": (0, 3)}, "num_digits: expected two numbers from 1 to 15"),
        ({"num_digits": (5, 3)}, "the lower first, got"),
        ({"operations": "*"}, r"operations: expected \+, - or \+-, got '\*'"),
        ({"form": "backwards"}, "form: expected direct, reversed, steps, got 'backwards'"),
        ({"part": "valid"}, "part: expected train, test, got 'valid'"),
    ],
)
def test_what_is_refused(refused, message):
    with pytest.raises(ValueError, match=message):
        sum_pairs(1, **refused)


def test_what_is_refused_of_word_problems():
    with pytest.raises(ValueError, match="largest: expected 2 or more, got 1"):
        word_problem_pairs(1, 1)
    with pytest.raises(ValueError, match="form: expected direct, lines, steps, got 'reversed'"):
        word_problem_pairs(1, form="reversed")
    with pytest.raises(ValueError, match="part: expected"):
        word_problem_pairs(1, part="valid")
