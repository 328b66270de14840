"""Whether XLA compiles training steps and decoding: yes, unless the environment says KERAS_TFM_JIT=0.

What is compiled runs faster, but each new shape takes seconds to compile: 0 suits tiny runs and the search
for faults, as JAX_DISABLE_JIT does for JAX.
"""

import os


def jit_compile():
    """The value for `jit_compile=` of `Model.compile` and `tf.function`, read anew at each call."""
    value = os.environ.get("KERAS_TFM_JIT", "1")
    if value not in ("0", "1"):
        raise ValueError(f"The environment variable KERAS_TFM_JIT must be 0 or 1; it is {value!r}.")
    return value == "1"
