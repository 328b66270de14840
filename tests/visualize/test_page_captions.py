"""Words to patches: what a captioner's page holds, and what a real browser draws of it."""

import numpy as np
import pytest

from keras_tfm.tasks import Captioner, CaptionerOptions
from keras_tfm.visualize import attention_page, look
from tests import contract
from tests.tasks.image_text.test_matcher import SENTENCES, drawn
from tests.visualize.browser import Tab

ENCODER = {"patch_size": 4, "num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}
DECODER = {"num_layers": 2, "dim": 16, "num_heads": 2}
IMAGE = drawn(SENTENCES[:1]).images[0].repeat(2, axis=0).repeat(2, axis=1)[:, :12]  # 16 x 12


@pytest.fixture(scope="module")
def task():
    changes = {"image_size": (16, 12), "encoder_config": ENCODER, "decoder_config": DECODER}
    options = CaptionerOptions(vocabulary_size=300, max_length=12)
    task = Captioner.make(drawn(SENTENCES), options, changes)
    contract.randomise(task.model, seed=3)
    return task


def test_words_look_at_patches(task):
    seen = look(task, IMAGE, "red top")
    assert (seen.grid, seen.num_prefix, seen.kinds) == ((4, 3), 1, ["encoder", "decoder", "cross"])
    names = task.tokenizer.tokens
    ids = [names.index(token) for token in seen.target_tokens]
    assert ids == [task.tokenizer.start_id, *task.tokenizer.tokenize(["red top"])[0].numpy()]
    cross = seen.of("cross")
    patches = ["[class]", *(f"{row},{column}" for row in range(4) for column in range(3))]
    assert [list(x.key_tokens) for x in cross] == [patches] * 2
    assert [x.query_tokens for x in cross] == [seen.target_tokens] * 2
    assert cross[0].weights.shape == (2, len(ids), 13)
    np.testing.assert_allclose(cross[0].weights.sum(-1), 1, rtol=1e-5)
    assert seen.of("decoder")[0].key_tokens == seen.target_tokens
    np.testing.assert_array_equal(seen.image, IMAGE)
    written = look(task, IMAGE, max_new_tokens=4).target_tokens[1:]
    ids = [names.index(token) for token in written]
    assert (
        task.tokenizer.detokenize([ids]).numpy()[0].decode("utf-8", "replace")
        == (task.generate(IMAGE[None], max_new_tokens=4)[0])
    )


def test_the_grid_is_that_of_the_encoder():
    fields = {"stem_dim": 4, "dims": (8, 8), "depths": (1, 1), "block": "basic"}
    changes = {"image_size": 32, "encoder_config": fields, "decoder_config": DECODER | {"num_layers": 1}}
    options = CaptionerOptions(encoder="resnet", vocabulary_size=300, max_length=12)
    task = Captioner.make(drawn(SENTENCES), options, changes)
    (cross,) = look(task, np.zeros((32, 32, 3), "uint8"), "red").of("cross")
    assert list(cross.key_tokens) == [f"{row},{column}" for row in range(4) for column in range(4)]


def test_a_word_is_chosen_and_its_patches_are_bright(task, browser, tmp_path):
    page = attention_page(task, IMAGE, tmp_path / "page.html", "red top")
    assert [step["query"] for step in page.header["steps"]] == list(range(len(page.header["steps"])))
    patterns = {score["kind"] for pattern in page.header["patterns"] for score in pattern["scores"]}
    assert patterns == {"encoder", "decoder"}
    tab = Tab(browser, (tmp_path / "page.html").as_uri())
    views = tab.page.eval_on_selector_all("#views button", "tabs => tabs.map((tab) => tab.textContent)")
    assert views == ["Lines", "All heads", "Matrix", "Query · key", "Patterns", "Picture", "Steps"]
    assert tab.page.get_attribute("#stage", "data-view") == "Picture"
    steps = page.header["steps"]
    by_head = look(task, IMAGE, "red top").of("cross")[-1].weights
    weights = by_head.mean(0)
    bound = by_head.max() / 30 + 1e-6  # half a step of 4 bits
    for place in (0, 2):
        tab.page.click(f"[aria-label=Words] label:nth-child({place + 1})")
        tab.drawn("Picture")
        patches = np.array(tab.marks(".picture > canvas"))
        assert np.abs(patches - weights[place, 1:]).max() <= bound
        word = steps[place]["token"].replace("Ġ", "")
        assert word in tab.text("#caption").replace("␣", "") and "was read for" in tab.text("#caption")
        assert "it read" in tab.text("#chosen h2")
    tab.page.focus(".picture > canvas")
    tab.page.keyboard.press("ArrowLeft")
    tab.drawn("Picture")
    assert np.abs(np.array(tab.marks(".picture > canvas")) - weights[1, 1:]).max() <= bound
    tab.page.click(".picture > canvas")  # a patch is no word: nothing changes
    tab.drawn("Picture")
    assert np.abs(np.array(tab.marks(".picture > canvas")) - weights[1, 1:]).max() <= bound
    tab.page.screenshot(path=tmp_path / "words.png")
    tab.page.click("#kinds label:has-text('Encoder')")
    tab.drawn("Picture")
    assert "reads" in tab.text("#caption")
    for view in views:
        tab.view(view)
        assert tab.text("#caption")
    assert tab.errors == []
