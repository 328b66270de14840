"""Answers from a folder that `Task.export` wrote, in whichever format, through one interface.

    served = load("exported/sentiment")
    served(["a warm film"])  # {"label": array(["1"]), "probabilities": array([[0.02, 0.98]])}

This package stands alone, and every exported folder but a SavedModel holds a copy of it. It needs NumPy, the
format's runtime (onnxruntime, ai_edge_litert, openvino or ctranslate2; for a SavedModel tensorflow),
`tokenizers` or `sentencepiece` for texts and Pillow for image files, each imported when a folder asks for
it; neither Keras nor keras_tfm.
"""

from .files import LAYOUT, NAME, digests_of
from .served import SavedModel, Served, describe, is_export, load

__all__ = ["Served", "SavedModel", "describe", "is_export", "load"]
