"""An `Imagen` that reads texts by an encoder which was trained before: its weights stay, its words count."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_tfm import convert, tasks
from keras_tfm.cli import main
from keras_tfm.data import BERTTokenizer, ByteLevelTokenizer
from keras_tfm.models import BERT, DistilBERT, RoBERTa
from keras_tfm.tasks import ImageGenerator, MaskedLanguageModel, Translator
from keras_tfm.tasks.images.generator_options import GeneratorOptions
from tests.tasks.images.test_enlarging import LARGE, enlarged
from tests.tasks.images.test_text_to_image import ENCODER, TEXTS, UNET, examples, served_like, write

SIZES = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}
SMALL = {"image_size": 4, "num_channels": 1, "unet_config": UNET}
LENGTH = 12  # of texts; the encoders hold 20 tokens and more


def of_a_run(folder):
    """The RUN of a masked language model, a BERT."""
    tokenizer = BERTTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "all", "is", "dark", "light"])
    task = MaskedLanguageModel.from_tokenizer(tokenizer, "tiny", **SIZES, max_length=128)
    task.save(folder)
    return task.model.backbone, task.tokenizer


def of_transformers(family, tokenizer, folder, **changes):
    """A folder of transformers, with an encoder of the `family`."""
    sizes = {**SIZES, "vocabulary_size": tokenizer.vocabulary_size, "max_length": 20, **changes}
    encoder = family(family.config_class.from_json(sizes))
    convert.save_huggingface(encoder, folder, tokenizer=tokenizer)
    return encoder, tokenizer


def of_distilbert(folder):
    return of_transformers(DistilBERT, BERTTokenizer.train(TEXTS, 300), folder)


def of_roberta(folder):
    tokenizer = ByteLevelTokenizer.train(TEXTS, 270)
    return of_transformers(RoBERTa, tokenizer, folder, pad_id=tokenizer.pad_id)


def options_for(folder, **changes):
    changes = {"text_encoder": str(folder), "max_length": LENGTH, **changes}
    return GeneratorOptions("imagen", **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The RUN of a masked language model."""
    folder = tmp_path_factory.mktemp("text_encoder") / "bert"
    keras.utils.set_random_seed(0)
    of_a_run(folder)
    return folder


@pytest.mark.parametrize("made", [of_a_run, of_distilbert, of_roberta])
def test_it_reads_texts_as_the_given_one_does(made, tmp_path):
    encoder, tokenizer = made(tmp_path / "encoder")
    task = ImageGenerator.make(examples(8), options_for(tmp_path / "encoder"), SMALL)
    inputs = task.condition.inputs(TEXTS)
    assert inputs["token_ids"].shape == (2, LENGTH)
    words = inputs["token_ids"][0][inputs["padding_mask"][0]]
    assert [words[0], words[-1]] == [tokenizer.start_id, tokenizer.end_id]
    assert tokenizer.detokenize([words[1:]]).numpy().tolist() == [TEXTS[0].encode()]
    read = task.model.backbone.encode(**inputs)["text"]
    expected = encoder(inputs)["sequence_output"]
    for row, mask in enumerate(inputs["padding_mask"]):
        np.testing.assert_allclose(read[row][mask], expected[row][mask], atol=1e-5)


def test_it_stays_as_it_is(folder, tmp_path):
    task = ImageGenerator.make(examples(64), options_for(folder), SMALL)
    config = task.model.backbone.encoder.config
    assert (config.dropout, config.attention_dropout, config.max_length) == (0, 0, LENGTH)
    encoder = task.model.backbone.encoder.get_weights()
    unet = task.model.backbone.unet.get_weights()
    task.fit(examples(64), run=tmp_path / "run", epochs=1, batch_size=8, learning_rate=1e-2)
    assert not all(map(np.array_equal, unet, task.model.backbone.unet.get_weights()))
    again = tasks.load(tmp_path / "run")
    more = ImageGenerator.start_from(tmp_path / "run", examples(64))
    more.fit(examples(64), epochs=1, batch_size=8)
    for other in (task, again, more):
        backbone = other.model.backbone
        assert not backbone.encoder.trainable_weights and backbone.unet.trainable_weights
        assert all(map(np.array_equal, encoder, backbone.encoder.get_weights()))


def test_it_learns_where_the_configuration_says_so(folder):
    task = ImageGenerator.make(examples(64), options_for(folder), {**SMALL, "trains_encoder": True})
    before = task.model.backbone.encoder.get_weights()
    task.fit(examples(64), epochs=1, batch_size=8, learning_rate=1e-2)
    assert not all(map(np.array_equal, before, task.model.backbone.encoder.get_weights()))


def test_a_model_that_enlarges_has_it_too(folder, tmp_path):
    small = ImageGenerator.make(examples(8), options_for(folder), SMALL)
    small.save(tmp_path / "small")
    options = GeneratorOptions("imagen", small=str(tmp_path / "small"))
    large = ImageGenerator.make(enlarged(8), options, LARGE)
    own = large.model.backbone.encoder
    assert not own.trainable_weights and isinstance(own, BERT) and large.condition.max_length == LENGTH
    assert all(map(np.array_equal, own.get_weights(), small.model.backbone.encoder.get_weights()))
    with pytest.raises(ValueError, match="`text_encoder` must be left out, as texts are read as --small"):
        options = dataclasses.replace(options, text_encoder=str(folder))
        ImageGenerator.make(enlarged(8), options, LARGE)


def test_what_does_not_fit_is_refused(folder, tmp_path):
    def make(options, **changes):
        ImageGenerator.make(examples(8), options, {**SMALL, **changes})

    with pytest.raises(ValueError, match="`max_length` must be at most 128, which --text-encoder holds"):
        make(options_for(folder, max_length=129))
    with pytest.raises(ValueError, match="`vocabulary_size` must be left out, as texts are read as --text"):
        make(options_for(folder, vocabulary_size=500))
    with pytest.raises(ValueError, match="`tokenizer` must be left out"):
        make(options_for(folder, tokenizer="sentencepiece"))
    with pytest.raises(ValueError, match="`encoder_config` must be left out, as the encoder is that of"):
        make(options_for(folder), encoder_config=ENCODER)
    tasks.load(folder, quantization="int8").save(tmp_path / "small")
    with pytest.raises(ValueError, match="8 bits cannot be part of a model in floats"):
        make(options_for(tmp_path / "small"))
    with pytest.raises(ValueError, match="`text_encoder` must be left out for the family dit; it is x"):
        GeneratorOptions("dit", text_encoder="x").base()
    Translator.from_pairs((TEXTS, TEXTS), vocabulary_size=300).save(tmp_path / "translator")
    with pytest.raises(ValueError, match="`text_encoder` must be one of DistilBERT, BERT, RoBERTa; it is"):
        make(options_for(tmp_path / "translator"))
    ImageGenerator.make(examples(8).images, GeneratorOptions("dit"), {"image_size": 4, "patch_size": 2}).save(
        tmp_path / "dit"
    )
    with pytest.raises(ValueError, match="`text_encoder` must be one of DistilBERT, BERT, RoBERTa; it is"):
        make(options_for(tmp_path / "dit"))


@pytest.mark.slow
def test_the_command_line(folder, tmp_path, capsys):
    write(examples(8), tmp_path / "data")
    (tmp_path / "small.json").write_text(json.dumps(SMALL), "utf-8")
    train = [
        "train",
        "generate-images",
        "--data",
        str(tmp_path / "data"),
        "--family",
        "imagen",
        "--epochs",
        "1",
    ]
    train += ["--config", str(tmp_path / "small.json"), "--out", str(tmp_path / "run"), "--text-encoder"]
    main([*train, str(folder)])
    served_like(tasks.load(tmp_path / "run"), tmp_path / "export")
    for words, expected in (
        ([str(tmp_path / "nothing")], "nothing"),
        (
            [str(folder), "--max-length", "500"],
            "--max-length must be at most 128, which --text-encoder holds",
        ),
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main([*train, *words, "--overwrite"])
        assert expected in capsys.readouterr().err
