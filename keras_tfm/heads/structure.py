"""What a predicted structure is thought to be worth: scores from the logits of bins.

Jumper et al. 2021, supplement, sections 1.9.6 to 1.9.8.
"""

import numpy as np
from keras import ops

from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.signatures import Tensor


def expected_score(logits: Tensor) -> Tensor:
    """The mean of a score in [0, 1] whose bins have these `logits` (..., bins): (...), in float32.

    >>> float(keras_tfm.heads.expected_score(np.array([0.0, 0.0, 0.0, 0.0])))
    0.5
    """
    logits = in_float32(ops.convert_to_tensor(logits))
    centres = (np.arange(logits.shape[-1], dtype="float32") + 0.5) / logits.shape[-1]
    return ops.sum(ops.softmax(logits) * centres, axis=-1)
