"""Pictures hold what they were given: cells, hands, curves, names; each can be written as a file."""

import builtins
import os
import re
import sys

import keras
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from keras_tfm.cli import main
from keras_tfm.layers.positions import sines
from keras_tfm.models import CLIP, DETR, Swin, Transformer, ViT
from keras_tfm.models.families import families
from keras_tfm.private.keras import shapes_alone
from keras_tfm.training import input_jacobians, norms, products_to_end, state_jacobians
from keras_tfm.training.metrics_file import write_rows
from keras_tfm.visualize import attention_patterns, plots

RNG = np.random.default_rng(0)
WORDS = ["what", "time", "is", "it"]


def texts_in(axes):
    return [text.get_text() for text in axes.texts]


def test_an_alignment_is_its_weights(tmp_path):
    weights = RNG.dirichlet(np.ones(4), size=3)
    axes = plots.plot_alignment(weights, ["wie", "spät", "?"], WORDS)
    np.testing.assert_array_equal(axes.images[0].get_array(), weights)
    assert [label.get_text() for label in axes.get_xticklabels()] == WORDS
    assert [label.get_text() for label in axes.get_yticklabels()] == ["wie", "spät", "?"]
    plots.save(axes, tmp_path / "a.png", dpi=40)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"must be \(4, 4\), by the tokens"):
        plots.plot_alignment(weights, WORDS, WORDS)
    with pytest.raises(ValueError, match="expected a name that ends in"):
        plots.save(axes, tmp_path / "a.jpeg2")


def test_a_map_for_each_head_and_its_pattern():
    scores = {f"block_{i}": RNG.dirichlet(np.ones(4), size=(1, 3, 4)) for i in range(2)}
    maps = plots.plot_heads(scores).images
    assert len(maps) == 6
    np.testing.assert_array_equal(maps[4].get_array(), scores["block_1"][0, 1])
    patterns = attention_patterns(scores, WORDS)
    told = texts_in(plots.plot_patterns(patterns))
    rows = patterns.table()
    assert told == [f"{row[row['strongest']]:.2f}" for row in rows]


def test_axes_that_are_given_are_drawn_upon():
    axes = plots.new_axes()
    for draw in (
        lambda: plots.plot_distances(np.ones((2, 3)), axes),
        lambda: plots.plot_curves({"a": [1, 2]}, axes),
        lambda: plots.plot_mask(np.eye(2) > 0, axes=axes),
    ):
        assert draw() is axes
    with pytest.raises(ValueError, match="shape"):
        plots.plot_mask(np.ones(3))


def test_a_shift_moves_every_position():
    for shift in (-1, 2.5):
        positions = np.arange(10)
        moved = np.asarray(sines(positions, 16)) @ plots.shift_matrix(shift, 16).T
        np.testing.assert_allclose(moved, sines(positions + shift, 16), atol=1e-5)
    one, other = plots.shift_matrix(1, 8), plots.shift_matrix(2, 8)
    np.testing.assert_allclose(one @ other, plots.shift_matrix(3, 8), atol=1e-12)
    np.testing.assert_allclose(one @ one.T, np.eye(8), atol=1e-12)
    np.testing.assert_allclose(plots.plot_shift(3, 8).images[0].get_array(), plots.shift_matrix(3, 8))


def test_clocks_show_the_sine_and_the_cosine():
    axes = plots.plot_clocks(num_positions=5, dim=4)
    encoding = np.asarray(sines(np.arange(5), 4))
    hands = [line.get_xydata()[1] for line in axes.lines if len(line.get_xydata()) == 2]
    expected = np.concatenate([encoding[:, :2], encoding[:, 2:] + [2.5, 0]])
    np.testing.assert_allclose(hands, expected, atol=1e-6)
    with pytest.raises(ValueError, match="must be even"):
        plots.plot_clocks(dim=3)


def test_scaling_keeps_the_softmax_wide():
    """One draw, d = 64 and 200 keys: entropies below 2 and above 4.5 nats, of at most 5.3."""
    axes = plots.plot_softmax(64, 200)
    peaked, wide = (line.get_ydata() for line in axes.lines)
    for weights in (peaked, wide):
        np.testing.assert_allclose(weights.sum(), 1)
    assert peaked.max() > 10 * wide.max()
    peaked, wide = (-(x * np.log(np.maximum(x, 1e-300))).sum() for x in (peaked, wide))
    assert peaked < 2 < 4.5 < wide < np.log(200)
    assert [label.get_text().split(":")[0] for label in axes.get_legend().get_texts()] == ["q·k", "q·k / √d"]


def test_the_query_lies_near_the_keys_that_it_finds():
    """A query for "cool": two of the words answer it, by weights that sum to more than 0.95."""
    keys = RNG.normal(size=(4, 16))
    query = 4 * (keys[1] + keys[3])
    told = texts_in(plots.plot_query_and_keys(query, keys, WORDS))
    weights = {name: float(weight) for name, weight in (text.split() for text in told if text != "query")}
    assert list(weights) == WORDS
    assert weights["time"] + weights["it"] > 0.95
    flat = plots.plot_query_and_keys(np.array([1.0, 0, 0]), np.eye(3), WORDS[:3])
    assert texts_in(flat)[0].startswith("what")


@pytest.mark.parametrize("width", [1, 2])
def test_arrows_of_one_or_two_numbers_lie_in_the_plane(width):
    axes = plots.plot_query_and_keys(np.ones(width), np.ones((3, width)), WORDS[:3])
    assert all((line.get_data_3d()[2] == 0).all() for line in axes.lines)


def test_embeddings_lie_at_their_principal_components():
    plane = RNG.normal(size=(5, 2))
    turn = np.linalg.qr(RNG.normal(size=(7, 7)))[0][:2]
    axes = plots.plot_embeddings([*WORDS, "?"], plane @ turn, pairs=[("what", "time")])
    points = np.asarray(axes.collections[0].get_offsets())
    between = [np.linalg.norm(x[:, None] - x, axis=-1) for x in (points, plane)]
    np.testing.assert_allclose(*between, atol=1e-9)
    assert texts_in(axes) == [*WORDS, "?"]
    with pytest.raises(ValueError, match="three words or more"):
        plots.plot_embeddings(WORDS[:2], plane[:2])


def test_a_model_by_its_stacks():
    with shapes_alone():
        model = Transformer.from_size("tiny", num_layers=3)
    told = texts_in(plots.plot_model(model))
    assert {"encoder", "decoder", "cross-attention", "attention", "feed-forward"} <= set(told)
    assert sum(text.startswith("3 × ") for text in told) == 2
    assert told.count(f"T × {model.config.dim}") == 2


def test_a_pyramid_by_the_shapes_of_its_maps():
    with shapes_alone():
        model = Swin.from_size("T")
    told = texts_in(plots.plot_model(model))
    shapes = [text for text in told if text.count(" × ") == 2]
    assert shapes == ["56 × 56 × 96", "28 × 28 × 192", "14 × 14 × 384", "7 × 7 × 768"]


@pytest.mark.parametrize(("family", "arrows"), [(ViT, 2), (CLIP, 4), (DETR, 6), (Transformer, 5)])
def test_words_stay_in_their_boxes(family, arrows):
    """Whatever the outputs are called. A detector's encoder has an arrow from its backbone."""
    with shapes_alone():
        model = family.from_size(next(iter(family.sizes)))
    axes = plots.plot_model(model)
    FigureCanvasAgg(axes.figure).draw()
    boxes = [patch.get_window_extent() for patch in axes.patches]
    told = [text for text in axes.texts if text.get_ha() == "center" and text.get_fontsize() == 9]
    for text in told:
        own = text.get_window_extent()
        assert any(
            box.x0 <= own.x0 and own.x1 <= box.x1 and box.y0 <= own.y0 and own.y1 <= box.y1 for box in boxes
        ), text.get_text()
    assert sum(text.arrow_patch is not None for text in axes.texts if hasattr(text, "arrow_patch")) == arrows


FAMILIES = {
    name: family
    for name, family in sorted(families().items())
    if isinstance(family, type) and getattr(family, "sizes", None)
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_by_its_blocks(name):
    """All its blocks are there, with their parameters and shapes."""
    family = FAMILIES[name]
    with shapes_alone():
        model = family.from_size(next(iter(family.sizes)))
    axes = plots.plot_model(model)
    assert set(model.blocks) <= set(texts_in(axes))
    told = [text.get_text() for text in axes.texts if text.get_ha() == "left" and text.get_text()]
    counts = [re.fullmatch(r"(?:(\d+) × )?[\d.]+[KMB]?", text)[1] or 1 for text in told]
    assert sum(map(int, counts)) == sum(map(len, model.blocks.values()))
    shapes = [text.get_text() for text in axes.texts if text.get_ha() == "right" and " × " in text.get_text()]
    assert len(shapes) == (len(told) if model.hidden_states else 0)  # recurrent ones keep none


def test_all_models_of_the_chart():
    axes = plots.plot_sizes()
    assert len(texts_in(axes)) == len(axes.collections[0].get_offsets()) == len(plots.MODEL_SIZES)


@pytest.fixture
def run(tmp_path):
    columns = {
        "epoch": lambda i: i,
        "step": lambda i: 9 * i,
        "loss": lambda i: 3 / i,
        "val_loss": lambda i: 4 / i,
        "accuracy": lambda i: i / 9,
    }
    rows = [{name: str(value(i)) for name, value in columns.items()} for i in (1, 2, 3)]
    write_rows(tmp_path / "metrics.csv", rows)
    return tmp_path, rows


def test_the_loss_is_drawn_first():
    names = ("epoch", "step", "learning_rate", "seconds", "accuracy", "gradient_norm", "loss", "val_accuracy")
    rows = [dict.fromkeys(names, "1")]
    axes = plots.draw_training({"a": rows}).axes
    with pytest.raises(ValueError, match="Expected a loss or another measure in the tables; they have none"):
        plots.draw_training({"a": [{"epoch": "1", "loss": ""}]})
    assert [one.get_ylabel() for one in axes] == ["loss", "accuracy", "learning rate", "gradient norm"]


def test_a_training_by_epochs(run, monkeypatch, capsys):
    folder, rows = run
    axes = plots.plot_training(rows)
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines["training"] == [[1, 3], [2, 1.5], [3, 1]]
    assert lines["validation"] == [[1, 4], [2, 2], [3, 4 / 3]]
    assert [axes.get_ylabel() for axes in plots.draw_training({"a": rows}).axes] == ["loss", "accuracy"]
    with pytest.raises(ValueError, match="must be one of loss, accuracy"):
        plots.plot_training(rows, "bleu")
    main(["plot", str(folder)])
    assert (folder / "metrics.png").exists()
    (folder / "training.json").write_text('{"results": {"best_epoch": 2}}')
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    main(["plot", str(folder)])
    for axes, value in zip(figures[0].axes, (2, 2 / 9), strict=True):
        (ring,) = axes.collections
        assert ring.get_offsets().tolist() == [[2, value]] and ring.get_label() == "best epoch: 2"
    monkeypatch.undo()
    main(["plot", str(folder), str(folder), "--out", str(folder / "a.svg")])
    assert (folder / "a.svg").read_text().startswith("<?xml")


def test_runs_of_one_name_have_a_curve_each(run, monkeypatch):
    folder, rows = run
    drawn = []
    draw = plots.draw_training
    monkeypatch.setattr(
        plots, "draw_training", lambda tables, best: (drawn.append(list(tables)), draw(tables))[1]
    )
    folders = [str(folder / parent / "run") for parent in "ab"]
    for path in folders:
        os.makedirs(path)
        write_rows(os.path.join(path, "metrics.csv"), rows)
    main(["plot", *folders])
    main(["plot", folders[0], str(folder)])
    assert drawn == [["a/run", "b/run"], ["run", folder.name]]


def test_a_run_without_measures_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["plot", str(tmp_path)])
    assert stopped.value.code == 2
    assert "metrics.csv: expected one row per epoch" in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named(run, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    real = builtins.__import__

    def absent(name, *arguments, **options):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r'pip install "keras-tfm\[plot\]"'):
        plots.plot_sizes()
    with pytest.raises(SystemExit) as stopped:
        main(["plot", str(run[0])])
    assert stopped.value.code == 2 and "keras-tfm[plot]" in capsys.readouterr().err


def test_how_far_gradients_reach():
    """With linear cells they halve, or double, at every step; attention sees all alike."""
    x = RNG.normal(size=(9, 3))
    jacobians = {}
    for scale in (0.5, 2.0):
        cell = keras.layers.SimpleRNNCell(3, activation="linear", dtype="float64")
        cell.build((None, 3))
        cell.recurrent_kernel.assign(scale * np.eye(3))
        jacobians[f"times {scale}"] = products_to_end(state_jacobians(cell, x))
    attend = keras.layers.Attention(dtype="float64")
    jacobians["attention"] = input_jacobians(lambda x: attend([x, x]), x)
    jacobians["nothing"] = np.zeros((4, 2, 2))
    axes = plots.plot_reach(jacobians)
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    for scale in (0.5, 2.0):
        np.testing.assert_allclose(lines[f"times {scale}"], scale ** np.arange(10))
    np.testing.assert_allclose(lines["attention"], norms(jacobians["attention"])[::-1])
    assert np.isnan(lines["nothing"]).all() and axes.get_yscale() == "log"
    with pytest.raises(ValueError, match=r"a: expected Jacobians \(N, P, D\), got the shape \(3,\)"):
        plots.plot_reach({"a": np.ones(3)})
