"""Llama's checkpoints (Touvron et al. 2023)."""

from keras_tfm.convert.rotary_decoder import family
from keras_tfm.models import Llama

FAMILY = family("llama", Llama, fixed_entries={"attention_bias": False, "mlp_bias": False})
