"""Conversion of checkpoints from and to other libraries; one table serves both directions.

`from_huggingface` and `save_huggingface` are for the folders of transformers, `from_timm` and `save_timm` for
timm's folders; `from_huggingface` reads both. In the comments of this package "ours" is what keras_tfm has,
"theirs" what the other library has.
"""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.convert.folder import find_folder
    from keras_tfm.convert.generation import read_decoding, write_decoding
    from keras_tfm.convert.huggingface import from_huggingface, head_arguments, save_huggingface
    from keras_tfm.convert.imagegpt import palette_of
    from keras_tfm.convert.timm import from_timm, save_timm
    from keras_tfm.convert.timm_preprocessing import timm_preprocessing_of
    from keras_tfm.training.safetensors import CheckpointError
else:
    on_demand.begin(globals())
