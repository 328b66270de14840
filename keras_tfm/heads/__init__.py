"""Heads: hidden states -> predictions, each beside its loss."""

from keras_tfm.heads.classification import ClassificationHead, Classifier, classification_loss
from keras_tfm.heads.language_model import (
    LanguageModel,
    LanguageModelHead,
    TokenCrossEntropy,
    token_accuracy,
    token_cross_entropy,
)
