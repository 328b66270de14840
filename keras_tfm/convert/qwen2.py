"""Qwen2's and Qwen2.5's checkpoints (Yang et al. 2024)."""

from keras_tfm.convert.rotary_decoder import family
from keras_tfm.models import Qwen2

FAMILY = family("qwen2", Qwen2, fixed_entries={"use_sliding_window": False})
