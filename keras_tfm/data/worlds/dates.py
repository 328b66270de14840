"""Dates in forty languages with their ISO 8601 form: a translation task that needs no download.

Names and patterns come from CLDR, Unicode's locale data, in the package Babel: "Πέμπτη 5 Μαρτίου 1987",
"1987年3月5日" and "5 mars 1987" all become "1987-03-05". A model has to learn forty sets of month names,
inflected and abbreviated, three orders of day, month and year, and to ignore weekdays.
"""

import datetime
import functools
import re
from collections.abc import Collection

import numpy as np
from babel import Locale
from babel.dates import format_date

from keras_tfm.data.sources.files import Pairs

LOCALES = (
    "ar", "bg", "bn", "ca", "cs", "da", "de", "el", "en", "es", "et", "fa", "fi", "fr", "he", "hi", "hr",
    "hu", "id", "is", "it", "ja", "ko", "lt", "lv", "nb", "nl", "pl", "pt", "ro", "ru", "sk", "sl", "sv",
    "sw", "th", "tr", "uk", "vi", "zh",
)  # fmt: skip
LENGTHS = ("full", "long", "medium")
FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)


def date_pairs(num_pairs: int, seed: int = 0, exclude: Collection[str] = ()) -> Pairs:
    """Random dates from 1900 to 2099 as pairs (written date, ISO 8601), in random languages and lengths.

    The same `seed` gives the same pairs. Dates in `exclude`, in ISO form, do not occur.

    >>> from keras_tfm.data.worlds import date_pairs
    >>> date_pairs(1, seed=3).targets
    ['2062-04-20']
    """
    excluded = {datetime.date.fromisoformat(date).toordinal() for date in exclude}
    ordinals = [day for day in range(FIRST.toordinal(), LAST.toordinal() + 1) if day not in excluded]
    random = np.random.default_rng(seed)
    dates = [datetime.date.fromordinal(day) for day in random.choice(ordinals, num_pairs).tolist()]
    styles = [date_styles()[index] for index in random.integers(len(date_styles()), size=num_pairs)]
    sources = [write_date(date, *style) for date, style in zip(dates, styles, strict=True)]
    return Pairs(sources, [date.isoformat() for date in dates])


def date_splits(num_train: int = 30_000, num_test: int = 1_000, seed: int = 0) -> tuple[Pairs, Pairs]:
    """(train, test) pairs; no date of the test pairs occurs in training, in any language.

    >>> from keras_tfm.data.worlds import date_splits
    >>> train, test = date_splits(num_train=20, num_test=5)
    >>> len(train.sources), len(test.targets), set(train.targets) & set(test.targets)
    (20, 5, set())
    """
    test = date_pairs(num_test, 2 * seed)
    return date_pairs(num_train, 2 * seed + 1, exclude=test.targets), test


@functools.cache
def date_styles() -> tuple[tuple[str, str], ...]:
    """All (locale, length) whose pattern distinguishes day and month: it spells the month ("5 mars 1987", "5
    tháng 3, 1987") or runs from year to day ("1987/03/05"). A pattern that a longer length also has is
    skipped.
    """
    styles: dict[tuple[str, str], tuple[str, str]] = {}
    for locale in LOCALES:
        for length in LENGTHS:
            pattern = re.sub("'[^']*'", "", _locale(locale).date_formats[length].pattern)
            fields = "".join(dict.fromkeys(re.findall("[yMd]", pattern)))
            if "MMM" in pattern or fields == "yMd":
                styles.setdefault((locale, pattern), (locale, length))
    return tuple(styles.values())


def write_date(date: datetime.date, locale: str, length: str) -> str:
    """Write `date` in a locale and a length, "full", "long" or "medium", always with the digits 0 to 9."""
    return format_date(date, length, _locale(locale))


_locale = functools.cache(Locale.parse)
