"""Numbers on the command line: each option says which it takes, and its error says which those are."""

import argparse
import math


def whole(least, most=2**31 - 1):
    """A parser of whole numbers from `least` to `most`, for argparse's `type`."""
    expected = f"at least {least:,}" if most == 2**31 - 1 else f"{least:,} to {most:,}"

    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise _refusal(f"a whole number of {expected}", text)
        return value

    return parse


def number(interval):
    """A parser of the numbers in an interval, written "(0, 1]", for argparse's `type`; nan is in none."""
    least, most = (float(end) for end in interval[1:-1].split(","))
    expected = f"in {interval}"
    if math.isinf(most):
        expected = f"above {least:g}" if interval[0] == "(" else f"of at least {least:g}"

    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        is_above = value > least or (interval[0] == "[" and value == least)
        is_below = value < most or (interval[-1] == "]" and value == most)
        if not (is_above and is_below):
            raise _refusal(f"a number {expected}", text)
        return value

    return parse


def _refusal(expected, text):
    return argparse.ArgumentTypeError(f"expected {expected}, got {text[:80]}")


positive = whole(1)
length = whole(1, 2**20)  # of texts, in tokens
seed = whole(0, 2**31 - 1)
