"""The first values of kernels and tables that many papers share: normal, with a standard deviation of 0.02.

A weight gets a copy, by `base.copy_of`: an initializer returns the same numbers at every call.
"""

import keras

NORMAL = keras.initializers.RandomNormal(stddev=0.02)  # GPT-2's code, and what descends from it
TRUNCATED = keras.initializers.TruncatedNormal(stddev=0.02)  # BERT's and DeiT's, without what is beyond 0.04
