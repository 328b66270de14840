"""Pictures by matplotlib, the extra `plot`: each function takes data and, if any, axes, and returns the axes.

from keras_tfm.visualize import look, plots
cross = look(translator, "What time is it?").of("cross")[-1]
axes = plots.plot_alignment(cross.weights.mean(0), cross.query_tokens, cross.key_tokens)
plots.save(axes, "alignment.png")
"""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.visualize.plots.attention import (
        plot_alignment,
        plot_distances,
        plot_heads,
        plot_mask,
        plot_patterns,
        plot_query_and_keys,
        plot_softmax,
    )
    from keras_tfm.visualize.plots.canvas import new_axes, save
    from keras_tfm.visualize.plots.confusion import plot_confusion
    from keras_tfm.visualize.plots.curves import (
        draw_training,
        plot_curves,
        plot_embeddings,
        plot_reach,
        plot_training,
    )
    from keras_tfm.visualize.plots.models import MODEL_SIZES, plot_model, plot_sizes
    from keras_tfm.visualize.plots.positions import plot_clocks, plot_positions, plot_shift, shift_matrix
else:
    on_demand.begin(globals())
