"""Mistral's checkpoints (Jiang et al. 2023)."""

from keras_tfm.convert.rotary_decoder import family
from keras_tfm.models import Mistral

FAMILY = family("mistral", Mistral, {"window": "sliding_window"}, {"sliding_window": 4_096})
