"""Written dates: deterministic, unambiguous, and a test set that training never saw."""

import datetime
import re

import pytest
from babel import Locale

from keras_tfm.data.worlds.dates import LOCALES, date_pairs, date_splits, date_styles, write_date


@pytest.mark.parametrize(
    ("written", "style"),
    [
        ("Πέμπτη 5 Μαρτίου 1987", ("el", "full")),
        ("March 5, 1987", ("en", "long")),
        ("5. März 1987", ("de", "long")),
        ("1987年3月5日木曜日", ("ja", "full")),
        ("1987/03/05", ("ja", "medium")),
        ("5 মার্চ, 1987", ("bn", "long")),
        ("5 مارس 1987", ("fa", "long")),
        ("5 มีนาคม ค.ศ. 1987", ("th", "long")),
    ],
)
def test_dates_are_written_as_the_language_does(written, style):
    assert style in date_styles()
    assert write_date(datetime.date(1987, 3, 5), *style) == written


def test_forty_languages_each_in_some_style():
    assert len(LOCALES) == len(set(LOCALES)) == 40
    assert {Locale.parse(locale).language for locale, _ in date_styles()} == set(LOCALES)
    assert ("de", "medium") not in date_styles()  # 05.03.1987


def test_pairs_are_reproducible():
    pairs = date_pairs(500, seed=3)
    assert pairs == date_pairs(500, seed=3) != date_pairs(500, seed=4)
    assert len(pairs.sources) == len(pairs.targets) == 500
    for source, target in zip(*pairs, strict=True):
        date = datetime.date.fromisoformat(target)
        assert 1900 <= date.year <= 2099 and source.strip() == source
        numbers = [int(digits) for digits in re.findall("[0-9]+", source)]
        assert date.year in numbers and date.day in numbers


def test_no_string_stands_for_two_dates():
    """Every day of two years: the digits of a string say which day it is, whatever the year."""
    seen: dict[str, datetime.date] = {}
    for year in (1912, 2011):
        for day in range(datetime.date(year, 1, 1).toordinal(), datetime.date(year + 1, 1, 1).toordinal()):
            date = datetime.date.fromordinal(day)
            for style in date_styles():
                assert seen.setdefault(write_date(date, *style), date) == date


def test_held_out_dates_never_occur_in_training():
    train, test = date_splits(20_000, 1_000, seed=5)
    assert (len(train.sources), len(test.sources)) == (20_000, 1_000)
    assert not set(train.targets) & set(test.targets) and not set(train.sources) & set(test.sources)
    assert len(set(zip(*test, strict=True))) >= 999
    other_train, other_test = date_splits(20_000, 1_000, seed=6)
    assert other_test != test and other_train != train
    assert (train, test) == date_splits(20_000, 1_000, seed=5)


def test_excluded_dates_are_left_out():
    days = (f"{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29))
    excluded = [f"{year}-{day}" for day in days for year in range(1900, 2100)]
    dates = date_pairs(300, exclude=excluded).targets
    assert all(re.search("-(29|30|31)$", date) for date in dates)
