"""Pages where queries are other than the keys' patches, of detectors and pyramids, and windows' vectors."""

import base64
import zlib

import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.models import MaskFormer, MiT, MiTConfig
from keras_tfm.visualize import attention_page, look
from keras_tfm.visualize.record import record_products
from tests import contract
from tests.models.test_mask_former import SMALL as MASK_FORMER
from tests.tasks.images.test_detector import examples, make
from tests.visualize.browser import Tab
from tests.visualize.test_page_windows import windowed


def test_the_patches_of_an_object(browser, tmp_path):
    task = make(keep_aspect=True)
    contract.randomise(task.model, 1)
    image = examples(1)[0][0][:12]  # 12 x 32: half of the model's canvas is padding
    page = attention_page(task, image, tmp_path / "page.html")
    seen = look(task, image)
    assert seen.kinds == ["encoder", "decoder", "cross"] and seen.image.shape == (24, 32, 1)
    (cross,) = seen.of("cross")
    assert cross.query_grid is None and len(cross.key_grid) == cross.weights.shape[-1]
    assert cross.query_tokens == seen.target_tokens and cross.query_tokens[0].startswith("0: ")

    (answer,) = task.predict(image[None], threshold=0.0)
    (objects,) = [side["objects"] for side in page.header["sides"].values() if side["objects"]]
    order = np.argsort(-seen.objects.scores, kind="stable")
    own = np.array(objects["boxes"])[order] * [32, 24, 32, 24]  # on the canvas, which the image covers above
    np.testing.assert_allclose(own, answer["boxes"], atol=0.01)
    assert [seen.target_tokens[at].split()[1] for at in order] == answer["labels"]
    assert set(objects["shown"]) <= set(order.tolist()) and objects["shown"][0] == order[0]

    tab = Tab(browser, (tmp_path / "page.html").as_uri())
    assert tab.page.get_attribute("#stage", "data-view") == "Picture"
    surest = cross.query_tokens[order[0]]
    assert f"was read for “{surest}”" in tab.text("#caption") and surest in tab.text("#chosen h2")
    weights = cross.weights[:, order[0]].mean(0)
    patches = np.array(tab.marks(".picture > canvas"))
    assert np.abs(patches - weights).max() <= cross.weights.max() / 30 + 1e-6
    box = own[0] / [32, 24, 32, 24]
    width, height = tab.page.eval_on_selector(".picture > canvas", "x => [x.clientWidth, x.clientHeight]")
    corner = [[(box[0] + box[2]) / 2 * width, np.clip(box[1] * height, 1, height - 2)]]
    assert np.abs(np.array(tab.colours(".picture > canvas", corner)) - [255, 176, 0]).max() < 40
    for view in ("Lines", "All heads", "Matrix", "Query · key", "Picture"):
        tab.view(view)
    for kind in ("Encoder", "Decoder"):
        tab.view("Lines")
        tab.page.click(f"#kinds label:has-text('{kind}')")
        tab.drawn("Lines")
    assert tab.errors == []


@pytest.mark.slow
def test_a_patch_of_a_finer_map_than_the_keys(browser, tmp_path):
    sizes = {"dims": (8,), "depths": (1,), "num_heads": (1,), "patch_sizes": (3,), "strides": (2,)}
    model = MiT(MiTConfig(16, 1, **sizes, reductions=(2,), mlp_ratios=(2,)))
    task = tasks.Segmenter(model, ["ground", "sky"])
    contract.randomise(task.model, 1)
    image = np.random.default_rng(2).integers(0, 256, (16, 16)).astype("uint8")
    page = attention_page(task, image, tmp_path / "page.html")
    assert set(page.header["answer"].split(", ")) <= {"ground", "sky"} and page.header["answer"]
    (attention,) = look(task, image).attention
    assert attention.weights.shape == (1, 64, 16)
    tab = Tab(browser, (tmp_path / "page.html").as_uri())

    def shows(row, column):
        expected = attention.weights[0, 8 * row + column]
        assert np.abs(np.array(tab.marks(".picture > canvas")) - expected).max() <= expected.max() / 30 + 1e-6
        assert f"“{row},{column}” reads" in tab.text("#caption")

    shows(4, 4)  # the middle, where nothing was chosen
    tab.page.focus(".picture > canvas")
    tab.page.keyboard.press("ArrowUp")
    tab.drawn("Picture")
    shows(3, 4)
    box = tab.page.locator(".picture > canvas").bounding_box()
    tab.page.mouse.click(box["x"] + box["width"] * 6.5 / 8, box["y"] + box["height"] * 0.5 / 8)
    tab.drawn("Picture")
    shows(0, 6)
    assert tab.errors == []


@pytest.mark.slow
def test_a_query_of_masks(browser, tmp_path):
    task = tasks.Segmenter(MaskFormer(MASK_FORMER), ["ground", "sky"])
    contract.randomise(task.model, 1)
    page = attention_page(task, np.zeros((20, 24), "uint8"), tmp_path / "page.html")
    kinds = {score["kind"] for pattern in page.header["patterns"] for score in pattern["scores"]}
    assert kinds == {"encoder"} or not kinds  # a decoder's queries have no order
    tab = Tab(browser, (tmp_path / "page.html").as_uri())
    assert "was read for “0”" in tab.text("#caption") and tab.errors == []


@pytest.mark.slow
def test_queries_and_keys_of_a_window(browser, tmp_path):
    task, image, address = windowed(tmp_path)
    page = attention_page(task, image)
    entry = page.header["entries"][1]
    assert entry["key_dim"] == 4 and entry["is_biased"]
    size = len(zlib.decompress(base64.b64decode(page.blocks["vectors-1"])))
    assert size == 2 * 4 * 2 * 16 * (4 + 4)  # queries and keys, 4 windows, 2 heads, 16 cells, 4 numbers
    tab = Tab(browser, address)
    tab.page.keyboard.press("]")
    tab.view("Query · key")
    tab.page.select_option("#windows select", "-1")
    tab.drawn("Query")
    assert "Choose a window" in tab.text("#caption")
    tab.page.select_option("#windows select", "2")
    tab.drawn("Query")
    query, key, product = (np.array(tab.marks(f".strips figure:nth-child({n}) canvas")) for n in (1, 2, 3))
    np.testing.assert_allclose(product, query * key, rtol=1e-5)

    with record_products(task.model) as products:
        task.model({"images": task.prepare(image[None])})
    queries, keys, _ = products[entry["name"]]
    np.testing.assert_allclose(query, queries[2, 0, 0], atol=np.abs(queries[2, 0, 0]).max() / 127)
    place = int(tab.page.input_value("label:has-text('Key') select"))
    np.testing.assert_allclose(key, keys[2, 0, place], atol=np.abs(keys[2, 0, place]).max() / 127)
    assert f"q · k = {product.sum():.2f}" in tab.text("#caption") and tab.errors == []
