"""Weights in 8 bits (Keras's int8): a quarter of the memory; each product converts them to floats."""

from typing import Literal

import keras

from keras_tfm.private.keras import deleting_without_collections, layers_in

MODES = ("int8",)


def quantize(model: keras.Model, mode: str = "int8") -> None:
    """Store the weights of `model`'s dense layers and embeddings in 8 bits, with one scale per output.

    Call it before the model is compiled or trained. ValueError for another `mode`.
    """
    if mode not in MODES:
        raise ValueError(f"`quantization` must be one of {', '.join(MODES)}; it is {mode!r}.")
    chosen = _quantizable(model)
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    with deleting_without_collections():
        model.quantize(config=config, filters=lambda layer: any(layer is one for one in chosen))


def quantization_of(model: keras.Model) -> Literal["int8"] | None:
    """ "int8" for a model that `quantize` changed, None for a model in floats; ValueError for other
    quantisations.
    """
    modes = [getattr(layer, "quantization_mode", None) for layer in layers_in(model)]
    if not any(modes):
        return None
    for layer in _quantizable(model):
        config = layer.quantization_config if layer.quantization_mode == "int8" else None
        if config is None or config.activation_quantizer is not None:
            raise ValueError(
                f"{layer.path} is not quantised the way `quantize` does it, and cannot be saved."
            )
    if modes.count("int8") != len([mode for mode in modes if mode]):
        raise ValueError("A model that is quantised in several ways cannot be saved.")
    return "int8"


def _quantizable(model: keras.Model) -> list[keras.layers.Layer]:
    layers = layers_in(model)
    return [layer for layer in layers if isinstance(layer, keras.layers.Dense | keras.layers.Embedding)]
