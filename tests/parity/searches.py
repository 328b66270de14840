"""The beam searches that are compared."""

import itertools

# (Length penalty, beams, size of the n-grams that must not repeat)
SETTINGS = [*itertools.product((0.6, 1.0, 2.0), (4, 8), (0, 2))]


def searches(seed):
    """A third of the settings, since each search takes seconds; three seeds in a row have all."""
    return SETTINGS[seed % 3 :: 3]
