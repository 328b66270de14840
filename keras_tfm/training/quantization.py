"""Weights in 8 bits, a quarter of the memory, of which each product makes floats (Keras's int8)."""

from typing import Literal

import keras

from keras_tfm.private.keras import layers_in

MODES = ("int8",)


def quantize(model: keras.Model, mode: str = "int8") -> None:
    """Keep the weights of `model`'s dense layers and embeddings in 8 bits, with a scale for each output.

    Before anything of it is compiled or trained. Raises ValueError for another `mode`.
    """
    if mode not in MODES:
        raise ValueError(f"`quantization` must be one of {', '.join(MODES)}; it is {mode!r}.")
    chosen = _quantizable(model)
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=config, filters=lambda layer: any(layer is one for one in chosen))


def quantization_of(model: keras.Model) -> Literal["int8"] | None:
    """ "int8" of a model that `quantize` changed, None of one that nothing did; ValueError for others."""
    modes = [getattr(layer, "quantization_mode", None) for layer in layers_in(model)]
    if not any(modes):
        return None
    for layer in _quantizable(model):
        config = layer.quantization_config if layer.quantization_mode == "int8" else None
        if config is None or config.activation_quantizer is not None:
            raise ValueError(f"{layer.path} is not quantised as `quantize` does: it could not be kept.")
    if modes.count("int8") != len([mode for mode in modes if mode]):
        raise ValueError("A model quantised in several ways could not be kept.")
    return "int8"


def _quantizable(model: keras.Model) -> list[keras.layers.Layer]:
    layers = layers_in(model)
    return [layer for layer in layers if isinstance(layer, keras.layers.Dense | keras.layers.Embedding)]
