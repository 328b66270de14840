"""The environment of every process of tests, set before anything imports TensorFlow. What is given stays:
`CUDA_VISIBLE_DEVICES=0 make test` runs on a GPU.
"""

import os

DEFAULTS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "KERAS_BACKEND": "tensorflow",
    "KERAS_TFM_JIT": "0",  # XLA takes seconds to compile a step: `jit` is for tests of that
    "KERAS_TFM_GRAPPLER": "0",  # TensorFlow's optimiser of graphs: a quarter of the time
    "KERAS_TFM_GRAPH_CACHE": "0",  # what `predict` of tests traces does not join the user's
    "KERAS_TFM_XLA_CACHE": "0",  # compiled code of tests does not join the user's
}


def set_environment():
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
