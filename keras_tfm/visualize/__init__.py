"""Seeing inside a model: what its attention layers look at."""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.tasks.proteins.pdb import pdb_text
    from keras_tfm.visualize.attribution import (
        Attribution,
        attention_gradients,
        attention_rollout,
        input_attribution,
    )
    from keras_tfm.visualize.distance import attention_distance
    from keras_tfm.visualize.document import Page
    from keras_tfm.visualize.look import Attention, Look, look
    from keras_tfm.visualize.page import attention_page
    from keras_tfm.visualize.parts import Part, Size
    from keras_tfm.visualize.patterns import PATTERNS, Patterns, attention_patterns
    from keras_tfm.visualize.receptive_field import receptive_field
    from keras_tfm.visualize.record import AttentionHistory, attention_of, record_attention, with_attention
    from keras_tfm.visualize.samples import AttentionSamples
    from keras_tfm.visualize.size import size_of
else:
    on_demand.begin(globals())
