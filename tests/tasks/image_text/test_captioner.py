"""Captions: what is learnt, written, measured, kept, exported, published, and what is refused."""

import dataclasses
import json
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (the SavedModel's tokenizer)

from keras_tfm import tasks
from keras_tfm.convert import CheckpointError
from keras_tfm.data import ImageTexts, SentencePieceTokenizer
from keras_tfm.generation import DecodingDefaults
from keras_tfm.heads import LanguageModel
from keras_tfm.models import VisionEncoderDecoder
from keras_tfm.tasks import Captioner, CaptionerConfig, CaptionerOptions, ImageClassifier
from tests.fresh_process import ask
from tests.tasks.image_text.test_matcher import SENTENCES, drawn
from tests.tasks.images.test_image_classifier import SMALL as CLASSIFIER

CHANGES = {
    "image_size": 8,
    "encoder_config": {"patch_size": 4, "num_layers": 1, "dim": 32, "num_heads": 2, "intermediate_dim": 64},
}
RATES = dict.fromkeys(("dropout", "attention_dropout"), 0.0)
DECODERS = {
    "gpt2": {"num_layers": 1, "dim": 32, "num_heads": 2, "embedding_dropout": 0.0, **RATES},
    "bart": {"num_layers": 1, "dim": 48, "num_heads": 2, "intermediate_dim": 64, **RATES},
}
TOKENIZERS = {"gpt2": "bytes", "bart": "sentencepiece"}
EPOCHS = {"gpt2": 6, "bart": 20}


def fresh(decoder="gpt2", **changes):
    keras.utils.set_random_seed(0)
    options = CaptionerOptions(
        decoder=decoder, tokenizer=TOKENIZERS[decoder], vocabulary_size=300, max_length=40
    )
    own = {"decoder_config": DECODERS[decoder]}
    return Captioner.make(drawn(SENTENCES), options, CHANGES | own | changes)


@pytest.fixture(scope="module", params=["gpt2", pytest.param("bart", marks=pytest.mark.slow)])
def learnt(request, tmp_path_factory):
    """(A task that has learnt, its RUN)."""
    folder = tmp_path_factory.mktemp("runs") / request.param
    task = fresh(request.param)
    task.fit(
        drawn(SENTENCES * 40),
        drawn(SENTENCES, seed=1),
        epochs=EPOCHS[request.param],
        batch_size=16,
        learning_rate=6e-3,
        run=folder,
    )
    return task, folder


def test_it_says_what_is_on_an_image(learnt):
    task, folder = learnt
    examples = drawn(SENTENCES, seed=2)
    measures = task.evaluate(examples)
    assert measures["exact_match"] > 80 and measures["bleu"] > 80 and measures["chrf"] > 80
    assert measures["pairs"] == 16 and "nrefs:1|case:mixed" in measures["bleu_signature"]
    assert type(tasks.load(folder)) is Captioner
    answers = task.predict(examples.images)
    assert np.mean([a == b for a, b in zip(answers, examples.texts, strict=True)]) > 0.8
    beams = task.generate(examples.images, beam_size=3)
    assert np.mean([a == b for a, b in zip(beams, examples.texts, strict=True)]) > 0.8
    assert [task.generate(examples.images[i : i + 1])[0] for i in range(2)] == answers[:2]
    assert task.predict(examples.images[:0]) == []


@pytest.mark.slow
def test_drawing_from_a_seed(learnt):
    task, _ = learnt
    images = drawn(SENTENCES, seed=2).images
    one, same, other = (task.generate(images, temperature=3.0, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert task.generate(images, batch_size=8, temperature=3.0, seed=1)[8:] != one[8:]
    nucleus = task.generate(images, top_p=1e-6, seed=1)
    assert nucleus == task.generate(images)


def test_ids_begin_with_the_start(learnt):
    task, _ = learnt
    images = drawn(SENTENCES[:3]).images
    token_ids = task.generate_ids(images, 12)
    assert token_ids.shape == (3, 13) and (token_ids[:, 0] == task.tokenizer.start_id).all()
    texts = task.generate(images, max_new_tokens=12)
    assert [x.decode() for x in task.tokenizer.detokenize(token_ids[:, 1:]).numpy()] == texts
    assert task.generate_ids(images[:0], 12).shape == (0, 13)
    logits = task({"images": images, "decoder_token_ids": token_ids[:, :-1]})
    np.testing.assert_array_equal(np.argmax(logits, -1)[:, :5], token_ids[:, 1:6])


def test_what_fills_a_caption_behind_its_end_is_not_spelled(learnt):
    task, _ = learnt
    images = drawn(SENTENCES[:1]).images
    end_id, pad_id = task.generate_ids(images, 12)[0, 1:3].tolist()
    decoding = DecodingDefaults(end_ids=(end_id,), pad_id=pad_id)
    other = Captioner(task.model, task.tokenizer, dataclasses.replace(task.config, decoding=decoding))
    assert other.generate(images, max_new_tokens=12) == [
        task.tokenizer.detokenize([[end_id]]).numpy()[0].decode()
    ]
    assert other.generate_ids(images, 12)[0, -1] == pad_id


@pytest.mark.slow
def test_it_is_kept_and_exported(learnt, tmp_path):
    task, folder = learnt
    images = drawn(SENTENCES[:4], seed=3).images
    expected = task.generate(images)
    kept = tasks.load(folder)
    assert kept.generate(images) == expected
    kept.export(tmp_path / "served")
    files = [tf.io.encode_png(image).numpy() for image in images]
    served = ask(tmp_path / "served", image_bytes=files)["text"]
    assert served.tolist() == expected
    assert task.generate(files) == expected
    numbers = {name: np.float32(x) for name, x in (("temperature", 1), ("top_p", 1e-6))}
    numbers["seed"] = np.int32(1)
    served = ask(tmp_path / "served", name="generate", image_bytes=files, **numbers)["text"]
    assert served.tolist() == expected
    with pytest.raises(RuntimeError, match="`top_p` must lie in"):
        ask(tmp_path / "served", name="generate", image_bytes=files, **numbers | {"top_p": np.float32(2)})


@pytest.mark.slow
def test_beams_are_exported(learnt, tmp_path):
    task, _ = learnt
    images = drawn(SENTENCES, seed=3).images
    task.export(tmp_path / "served", beam_size=3, max_new_tokens=30)
    files = [tf.io.encode_png(image).numpy() for image in images]
    served = ask(tmp_path / "served", image_bytes=files)["text"]
    assert served.tolist() == task.generate(images, beam_size=3, max_new_tokens=30)


@pytest.mark.slow
def test_folders_of_transformers(learnt, tmp_path):
    task, _ = learnt
    if isinstance(task.tokenizer, SentencePieceTokenizer):
        with pytest.raises(TypeError, match="transformers knows no SentencePieceTokenizer"):
            task.save_huggingface(tmp_path / "published")
        return
    task.save_huggingface(tmp_path / "published")
    again = tasks.from_huggingface(tmp_path / "published")
    assert type(again) is Captioner and [*map(list, again.around)] == [*map(list, task.around)]
    images = drawn(SENTENCES[:4], seed=3).images
    assert again.generate(images) == task.generate(images)
    assert Captioner.reading(CaptionerOptions(), {}, tmp_path / "published")["image_shape"] == (8, 8, 3)
    other = Captioner.start_from(tmp_path / "published", None, interpolation="bicubic")
    assert other.config.interpolation == "bicubic"
    entries = json.loads((tmp_path / "published" / "config.json").read_text())
    assert entries["model_type"] == "vision-encoder-decoder"
    assert entries["decoder_start_token_id"] == task.tokenizer.start_id


def test_what_is_learnt_from():
    task = fresh()
    examples = ImageTexts(drawn(SENTENCES[:2]).images, ["red", "a red half"])
    batches = task.batches(examples, task.training, is_validation=True)
    ((inputs, labels, weights),) = batches.dataset()
    start, end = task.tokenizer.start_id, task.tokenizer.end_id
    pieces = [x.numpy().tolist() for x in task.tokenizer.tokenize(examples.texts)]
    width = len(pieces[1]) + 1
    assert inputs["decoder_token_ids"].shape == labels.shape == weights.shape == (2, width)
    assert inputs["decoder_token_ids"][1].numpy().tolist() == [start, *pieces[1]]
    assert labels[1].numpy().tolist() == [*pieces[1], end]
    length = len(pieces[0]) + 1
    assert labels[0, :length].numpy().tolist() == [*pieces[0], end]
    assert weights.numpy().tolist() == [[1.0] * length + [0.0] * (width - length), [1.0] * width]
    np.testing.assert_array_equal(inputs["decoder_padding_mask"], weights > 0)
    assert set(inputs) == set(task.model.input)


def test_a_long_caption_is_cut_and_counted(caplog):
    task = fresh()
    images, long = drawn(SENTENCES[:3]).images, "x" * 100_000
    with caplog.at_level(logging.WARNING):
        batches = task.batches(ImageTexts(images, [long, "é!" * 50_000, "red"]), task.training)
    assert "2 of 3 texts exceed 40 tokens and are cut there" in caplog.text
    inputs, _, _ = next(iter(batches.dataset()))
    assert inputs["decoder_token_ids"].shape == (3, 39)


def test_several_captions_of_an_image_are_references_together(monkeypatch):
    task = fresh()
    images = drawn(SENTENCES[:2]).images[[0, 1, 0]]
    monkeypatch.setattr(task, "generate", lambda images, **_: ["the red half", "a wrong one"][: len(images)])
    measures = task.evaluate((images, ["a red part of it", "the blue half", "the red half"]))
    assert measures["exact_match"] == 50 and "nrefs:var" in measures["bleu_signature"]


def test_options_make_every_pair():
    base = CaptionerOptions().base()
    assert (base.encoder, base.decoder, base.image_size) == ("ViT", "GPT2", 32)
    base = CaptionerOptions(encoder="swin", decoder="bart", size="base").base()
    assert (base.encoder, base.decoder, base.of_encoder.dim, base.of_decoder.dim) == ("Swin", "BART", 96, 768)
    assert CaptionerOptions(size="base").base() == VisionEncoderDecoder.config_of_size(
        "base", vocabulary_size=8_000, max_length=64
    )
    with pytest.raises(ValueError, match="There is no encoder 'bert'; there are autoformer, "):
        CaptionerOptions(encoder="bert").base()


def test_a_model_for_another_size_keeps_its_untied_head():
    sizes = {"patch_size": 2, "depths": (1, 1), "num_heads": (1, 2), "dim": 8, "window": 2}
    options = CaptionerOptions(encoder="swin", tokenizer="bytes", vocabulary_size=300, max_length=40)
    parts = {"image_size": 16, "encoder_config": sizes, "decoder_config": DECODERS["gpt2"]}
    task = Captioner.make(drawn(SENTENCES), options, parts)
    model = LanguageModel(task.model.backbone, tied=False)
    larger = Captioner(model, task.tokenizer, CaptionerConfig(image_size=32))
    assert larger.image_shape == (32, 32, 3)
    for kept, given in zip(larger.model.weights, model.weights, strict=True):
        np.testing.assert_array_equal(kept, given)


def test_wrong_inputs_are_refused(tmp_path):
    task = fresh()
    images, texts = drawn(SENTENCES[:3])
    for wrong, message in (
        (images, r"examples: expected \(images, texts\), got ndarray of the shape"),
        ((images, ["a", " ", "b"]), "row 1: expected a text, got ' '"),
        ((images[..., :1], texts), r"`images` must have the shape \(B, H, W, 3\)"),
    ):
        with pytest.raises(ValueError, match=message):
            task.fit(wrong)
    with pytest.raises(ValueError, match=r"`max_new_tokens` must lie in \[1, 39\]; it is 40"):
        task.generate(images, max_new_tokens=40)
    with pytest.raises(ValueError, match="Beam search does not sample"):
        task.generate(images, beam_size=2, temperature=1.0)
    with pytest.raises(ValueError, match="`image_size` must be 8"):
        Captioner(task.model, task.tokenizer, CaptionerConfig(image_size=16))
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    broken = str(tmp_path / "broken.png")
    assert list(task.refusals([images[0], broken])) == [1]
    with pytest.raises(ValueError, match="row 0: expected a whole PNG or JPEG"):
        task.predict([broken])
    classifier = ImageClassifier.from_size("tiny", ["a", "b"], **CLASSIFIER)
    with pytest.raises(ValueError, match="expected a 'caption' task, got a 'classify-images' one"):
        Captioner.adopt(classifier, None)
    classifier.save_huggingface(tmp_path / "vit")
    with pytest.raises(CheckpointError, match="vision-encoder-decoder"):
        Captioner.from_huggingface(tmp_path / "vit")
