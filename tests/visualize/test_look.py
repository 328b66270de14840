"""What a task attends to in one raw example: its tokens, and the model's own weights."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.data import BERTTokenizer, ByteLevelTokenizer
from keras_tfm.models import ALBERT, BART, BERT, TNT, FNet, Swin
from keras_tfm.visualize import attention_page, look, record_attention
from tests.tasks.image_text.test_matcher import SENTENCES, drawn
from tests.tasks.image_text.test_matcher import fresh as matcher
from tests.tasks.tiny import TINY

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "dog", "##s"]
PAIRS = ["the cat", "the dog"], ["le chat", "le chien"]
SIZE = {"vocabulary_size": len(PIECES), "max_length": 16}


def classifier(family=BERT, size="tiny", texts=("the cat", "the dog"), **changes):
    model = family.from_size(size, **TINY | SIZE | changes)
    return tasks.TextClassifier.from_backbone(
        model, BERTTokenizer(PIECES), (texts, ["a", "b"]), max_length=12
    )


def translator(family="transformer", **changes):
    return tasks.Translator.from_pairs(PAIRS, family, "tiny", max_length=8, dim=16, **changes)


def test_an_encoder_by_its_tokens():
    task = classifier()
    view = look(task, "the cats sat")
    tokens = ["[CLS]", "the", "cat", "##s", "sat", "[SEP]"]
    assert (view.tokens, view.target_tokens, view.segments) == (tokens, [], [0] * 6)
    (attention,) = view.attention
    assert (attention.name, attention.kind, attention.layer) == ("block_0/attention/branch", "encoder", 0)
    assert attention.query_tokens == attention.key_tokens == tokens
    ids = [[PIECES.index(token) for token in tokens]]
    with record_attention(task.model) as recorded:
        task.model({"token_ids": np.array(ids)})
    np.testing.assert_allclose(attention.weights, recorded[attention.name][0], atol=1e-6)
    last = task.model.backbone({"token_ids": np.array(ids)})["sequence_output"]
    assert view.hidden_states["encoder"].shape == (2, 6, 32)
    np.testing.assert_allclose(view.hidden_states["encoder"][-1], last[0], atol=1e-5)


@pytest.mark.parametrize("way", [{"crop_fraction": 0.5}, {"keep_aspect": True}, {}])
def test_an_image_is_shown_as_the_model_reads_it(way):
    sizes = {"image_size": 32, "num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}
    task = tasks.ImageClassifier.from_size("tiny", ["a", "b"], **sizes)
    task = tasks.ImageClassifier(task.model, ["a", "b"], **way)
    seen = look(task, np.zeros((40, 60, 3), "uint8"))
    assert seen.image.shape == task.image_shape and seen.image.dtype == np.uint8


def test_pairs_have_segments():
    task = classifier(texts=[("the cat", "sat"), ("the", "dog")])
    for pair in [("the cat", "sat"), "the cat\tsat"]:
        view = look(task, pair)
        assert view.tokens == ["[CLS]", "the", "cat", "[SEP]", "sat", "[SEP]"]
        assert view.segments == [0, 0, 0, 0, 1, 1]


def test_a_layer_that_runs_several_times_is_several():
    task = classifier(ALBERT, "base", embedding_dim=4, num_layers=3)
    view = look(task, "the cat")
    assert [attention.layer for attention in view.of("encoder")] == [0, 1, 2]
    assert len({attention.name for attention in view.attention}) == 3


def test_an_encoder_decoder_reads_a_target():
    task = translator(num_layers=2, num_heads=2, intermediate_dim=16)
    view = look(task, "the cat", "le chat")
    assert view.kinds == ["encoder", "decoder", "cross"]
    spelled = "".join(view.target_tokens[1:]).replace("▁", " ").strip()
    assert (view.target_tokens[0], spelled, view.tokens[-1]) == ("<s>", "le chat", "</s>")
    for kind, queries, keys in [
        ("encoder", view.tokens, view.tokens),
        ("decoder", view.target_tokens, view.target_tokens),
        ("cross", view.target_tokens, view.tokens),
    ]:
        for number, attention in enumerate(view.of(kind)):
            assert (attention.layer, attention.query_tokens, attention.key_tokens) == (number, queries, keys)
            assert attention.weights.shape == (2, len(queries), len(keys))
            np.testing.assert_allclose(attention.weights.sum(-1), 1, rtol=1e-5)
    assert (np.triu(view.of("decoder")[0].weights, 1) == 0).all()


def test_without_a_target_it_reads_what_it_wrote():
    task = translator(num_layers=1, num_heads=2, intermediate_dim=16)
    view = look(task, "the cat", max_new_tokens=3)
    (written,) = task.generate(["the cat"], max_new_tokens=3)
    target = task.target_tokenizer
    ids = [target.tokens.index(token) for token in view.target_tokens]
    assert target.detokenize([ids]).numpy()[0].decode("utf-8", "replace") == written


def test_recurrent_attention_has_a_row_for_each_token():
    view = look(translator("recurrent", hidden_dim=8), "the cat", "le chat")
    (attention,) = view.attention
    assert (attention.kind, attention.query_tokens) == ("cross", view.target_tokens)
    assert attention.weights.shape == (1, len(view.target_tokens), len(view.tokens))


def test_a_decoder_alone_reads_on():
    task = tasks.TextGenerator.from_texts(
        ["the cat sat"], tokenizer="characters", max_length=12, num_layers=1, dim=8, num_heads=2
    )
    view = look(task, "the", " cat")
    assert (view.tokens, view.target_tokens) == (list("the"), list(" cat"))
    assert view.of("decoder")[0].query_tokens == list("the cat")
    assert len(look(task, "the", max_new_tokens=4).target_tokens) <= 4


def test_a_decoder_alone_reads_the_source_before_it_writes():
    view = look(translator("gpt2", num_layers=1, num_heads=2), "the cat", "le chat")
    assert view.tokens[-1] == "<s>"
    assert "".join(view.target_tokens) == "▁le▁chat"
    assert view.of("decoder")[0].key_tokens == view.tokens + view.target_tokens


def test_an_image_by_its_patches():
    sizes = {"image_size": (8, 12), "patch_size": 4, "num_channels": 1}
    task = tasks.ImageClassifier.from_size("tiny", ["a", "b"], num_layers=1, dim=16, num_heads=2, **sizes)
    image = np.arange(96, dtype="uint8").reshape(8, 12)
    view = look(task, image)
    assert (view.grid, view.num_prefix) == ((2, 3), 1)
    assert view.attention[0].key_tokens == ["[class]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]
    np.testing.assert_array_equal(view.image.squeeze(), image)


def test_each_tower_of_a_matcher_reads_its_side(tmp_path):
    task = matcher()
    image = drawn(SENTENCES[:1]).images[0]
    (tmp_path / "a.png").write_bytes(tf.io.encode_png(image).numpy())
    for example in (image, tmp_path / "a.png"):
        view = look(task, example)
        assert (view.grid, view.num_prefix, list(view.hidden_states)) == ((2, 2), 1, ["image"])
        (attention,) = view.attention
        assert attention.name.startswith("image_block_0") and attention.weights.shape == (2, 5, 5)
    assert look(task, str(tmp_path / "a.png")).image is None  # a string is a text, whatever it names
    view = look(task, "The red half is top.")
    (attention,) = view.attention
    assert view.image is None and attention.query_tokens == view.tokens
    assert (np.triu(attention.weights, 1) == 0).all()  # CLIP's texts are read from left to right
    ids = [task.tokenizer.tokens.index(token) for token in view.tokens]
    assert ids == np.asarray(task.text_inputs(tf.constant(["The red half is top."]))["token_ids"])[0].tolist()
    page = attention_page(task, "The red half is top.")
    assert page.header["answer"] == "" and page.header["picture"] is None
    with pytest.raises(ValueError, match="'match-images' writes no text"):
        look(task, image, "red")


def test_what_cannot_be_looked_at():
    with pytest.raises(ValueError, match="has no attention to look at"):
        sizes = {"num_layers": 1, "dim": 8, "intermediate_dim": 8}
        model = FNet.from_size("base", **SIZE | sizes)
        look(tasks.SentenceEncoder(model, BERTTokenizer(PIECES), tasks.SentenceEncoderConfig(12)), "the")
    with pytest.raises(ValueError, match="writes no text, so it takes no target"):
        look(classifier(), "the", "cat")
    with pytest.raises(ValueError, match="got 3"):
        look(classifier(), "a\tb\tc")
    ratings = tasks.Recommender.from_ratings((["a", "b"], ["x", "y"], [1.0, 2.0]), dim=1)
    with pytest.raises(ValueError, match="'recommend' reads neither"):
        look(ratings, "a")


def test_a_text_that_both_sides_read():
    sizes = {"num_layers": 1, "dim": 8, "num_heads": 2, "intermediate_dim": 8}
    model = BART.from_size("base", **sizes | {"num_decoder_layers": 1} | SIZE)
    task = tasks.TextClassifier.from_backbone(
        model, BERTTokenizer(PIECES), (["the", "cat"], ["a", "b"]), max_length=12
    )
    view = look(task, "the cat")
    assert view.kinds == ["encoder", "decoder", "cross"]
    assert view.target_tokens[1:] == view.tokens[:-1]


def test_a_choice_is_read_by_itself():
    base = classifier()
    examples = ["the cat"], [["sat", "dog"]], [0]
    task = tasks.ChoiceAnswerer.from_backbone(base.model.backbone, base.tokenizer, examples, max_length=12)
    assert look(task, ("the cat", "sat")).attention[0].weights.shape == (2, 6, 6)
    several = ["sat", "dog", "cat sat"]
    chosen = several[task.predict([("the cat", several)])[0]]
    for example in ("the cat\tsat\tdog\tcat sat", ("the cat", several)):
        tokens = look(task, example).tokens
        assert tokens == ["[CLS]", "the", "cat", "[SEP]", *chosen.split(), "[SEP]"]
        page = attention_page(task, example)
        assert page.header["answer"] == chosen and not page.header["notes"]
    assert "was cut" in attention_page(task, ("the cat", ["sat " * 30, "dog " * 30])).header["notes"][0]
    with pytest.raises(ValueError, match="got no choice"):
        look(task, "the cat")


def test_windows_are_an_axis_of_their_own():
    sizes = {"image_size": 16, "patch_size": 2, "dim": 8, "depths": (2,), "num_heads": (2,), "window": 4}
    task = tasks.ImageEncoder(Swin.from_size("T", **sizes))
    view = look(task, np.zeros((16, 16, 3), "uint8"))
    assert {attention.axes[0] for attention in view.attention} == {"windows"}
    assert {attention.weights.shape for attention in view.attention} == {(4, 2, 16, 16)}
    assert {weights.shape for weights in view.weights("encoder").values()} == {(4, 2, 16, 16)}
    assert view.attention[0].num_heads == 2 and view.attention[0].key_tokens[-1] == "15"


def test_what_ids_are_called():
    """Characters that are whole as they are, others by the names of their bytes."""
    tokenizer = ByteLevelTokenizer.train(["the naïve naïve cat"] * 9, 400)
    assert len(tokenizer.tokens) == tokenizer.vocabulary_size
    ids = tokenizer.tokenize(["the naïve\n東"]).to_list()[0]
    assert [tokenizer.tokens[i] for i in ids] == ["the", "Ġnaïve", "Ċ", "æ", "Ŀ", "±"]


def test_how_much_one_token_attends_to_another():
    view = look(classifier(num_layers=2, num_heads=2), "the cat sat")
    expected = [attention.weights[:, 2, 1] for attention in view.attention]
    np.testing.assert_array_equal(view.between("cat", "the"), np.stack(expected))
    np.testing.assert_array_equal(view.between(2, -4), np.stack(expected))
    twice = look(classifier(), "the cat the")
    with pytest.raises(ValueError, match="'the' stands 2 times among the tokens: name one, or give its"):
        twice.between("cat", "the")
    with pytest.raises(ValueError, match="'dog' stands 0 times"):
        twice.between("cat", "dog")
    with pytest.raises(ValueError, match="Expected a place among 5 tokens, got 5"):
        twice.between(5, 0)
    with pytest.raises(ValueError, match="no attention of kind 'cross'; there is encoder"):
        twice.between(0, 0, "cross")


@pytest.mark.parametrize("index", [0, 1])
def test_what_a_cell_attends_to_within_its_window(index):
    """A map of 8 x 8 cells in windows of 4 x 4; the second block shifts them by 2."""
    sizes = {"image_size": 16, "patch_size": 2, "dim": 8, "depths": (2,), "num_heads": (2,), "window": 4}
    task = tasks.ImageEncoder(Swin.from_size("T", **sizes))
    view = look(task, np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype("uint8"))
    attention = view.attention[index]
    assert attention.map_size == (8, 8) and attention.cells.shape == (4, 16)
    assert sorted(attention.cells.ravel()) == list(range(64))
    inside = {0: (slice(0, 4), slice(4, 8)), 1: (slice(2, 6), slice(6, 8))}[index]
    seen = attention.of_cell(3, 6)
    np.testing.assert_allclose(seen.sum((1, 2)), 1, rtol=1e-5)
    np.testing.assert_allclose(seen[(slice(None), *inside)].sum((1, 2)), 1, rtol=1e-5)
    assert (seen[(slice(None), *inside)] > 0).all()
    window, place = np.argwhere(attention.cells == 3 * 8 + 6)[0]
    first = attention.cells[window, 0]
    np.testing.assert_array_equal(
        seen[:, first // 8, first % 8], attention.weights[window, :, place, 0], strict=True
    )
    with pytest.raises(ValueError, match=r"a cell of a map of 8 x 8, got \(8, 0\)"):
        attention.of_cell(8, 0)
    with pytest.raises(ValueError, match=r"attends within windows; see `Attention\.of_cell`"):
        view.between(0, 1)
    with pytest.raises(ValueError, match="does not attend within windows of a map"):
        look(classifier(), "the cat").attention[0].of_cell(0, 0)


def test_patches_behind_the_attention_of_their_pixels():
    """TNT attends within each of four patches first, then among them and the class token."""
    sizes = {"image_size": 16, "patch_size": 8, "num_layers": 1, "dim": 8, "num_heads": 2}
    task = tasks.ImageEncoder(TNT.from_size("S", **sizes, inner_dim=4, inner_heads=2))
    view = look(task, np.zeros((16, 16, 3), "uint8"))
    pixels, patches = view.attention
    assert (view.grid, view.num_prefix) == ((2, 2), 1)
    assert pixels.axes[0] == "windows" and pixels.weights.shape == (4, 2, 4, 4)
    assert patches.key_tokens == ["[class]", "0,0", "0,1", "1,0", "1,1"]
