"""Folders that say how they decode: the tasks write what transformers writes, and give the folders back."""

import json
import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm.data.tokenizers.huggingface import read_huggingface_special_tokens, read_huggingface_tokenizer
from keras_tfm.tasks import Summarizer, TextGenerator, Translator
from tests.parity.gpt2_reference import draw_gpt2
from tests.parity.seq2seq import REFERENCES

TEXTS = [
    "So long and thanks for all the fish.",
    "the dog",
    "A ship reached its destination. Nobody was on it!",
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SEEDS = pytest.mark.parametrize("seed", range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2"))))
pytestmark = pytest.mark.parity


def bart_tokenizer(folder, in_one_file):
    """BART's tokenizer, learnt from TEXTS and written to `folder`: vocab.json and merges.txt, or one file."""
    import tokenizers

    learner = tokenizers.ByteLevelBPETokenizer()
    learner.train_from_iterator(TEXTS, vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    folder.mkdir()
    learner.save_model(str(folder))
    theirs = transformers.BartTokenizer.from_pretrained(folder)
    if in_one_file:
        theirs.save_pretrained(folder)
        for name in ("vocab.json", "merges.txt"):
            (folder / name).unlink(missing_ok=True)
    return theirs


def draw_settings(rng, size, end_id, unspeakable):
    """Entries of generation_config.json at random."""
    settings = {
        "num_beams": int(rng.choice([1, 3, 4])),
        "length_penalty": float(rng.choice([0.6, 1.0, 2.0])),
        "early_stopping": [True, False, "never"][rng.integers(3)],
        "no_repeat_ngram_size": int(rng.choice([0, 2, 3])),
        "repetition_penalty": float(rng.choice([1.0, 1.3])),
        "max_length": int(rng.integers(12, 18)),
        "min_length": int(rng.choice([0, 6])),
        "forced_eos_token_id": [None, end_id][rng.integers(2)],
        "eos_token_id": [end_id, [end_id, *rng.integers(5, size, 4).tolist()]][rng.integers(2)],
        "suppress_tokens": unspeakable,
    }
    often = rng.integers(5, size, (40, 3)).tolist()
    more = {
        "bad_words_ids": [ids[: 1 + rng.integers(2)] for ids in often[:10]] + [[end_id]],
        "sequence_bias": [[ids[: 1 + rng.integers(3)], float(rng.normal())] for ids in often],
        "begin_suppress_tokens": often[0] + often[1],
        "exponential_decay_length_penalty": [int(rng.integers(1, 6)), float(rng.uniform(1, 1.3))],
        "renormalize_logits": True,
    }
    settings |= {name: value for name, value in more.items() if rng.integers(2)}
    if settings["num_beams"] == 1:  # neither is read
        settings |= {"length_penalty": 1.0, "early_stopping": False}
    return {name: value for name, value in settings.items() if value is not None}


def write(model, settings, folder, where):
    """Their folder, with `settings` in generation_config.json or in config.json."""
    model.generation_config = transformers.GenerationConfig(**settings)
    model.save_pretrained(folder)
    if where == "config.json":
        (folder / "generation_config.json").unlink()
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def assert_same_tokens(ours, theirs, pad_id, score=None):
    """Which rows are equal; others must `score` alike, within rounding."""
    width = max(ours.shape[1], theirs.shape[1])
    ours, theirs = (
        np.pad(x, ((0, 0), (0, width - x.shape[1])), constant_values=pad_id) for x in (ours, theirs)
    )
    same = (ours == theirs).all(1)
    if not same.all() and score is not None:
        np.testing.assert_allclose(score(ours)[~same], score(theirs)[~same], rtol=1e-6)
        return same
    np.testing.assert_array_equal(ours, theirs)
    return same


def log_probability(model, batch):
    """A function of rows of tokens (B, L): the sums of log p that their model gives them."""

    def score(rows):
        rows = torch.from_numpy(np.asarray(rows)).long()
        with torch.no_grad():
            log_p = model(**batch, decoder_input_ids=rows).logits.log_softmax(-1)
        return log_p[:, :-1].gather(-1, rows[:, 1:, None]).sum((1, 2)).numpy()

    return score


@SEEDS
def test_bart(seed, tmp_path):
    """Its own byte-level tokenizer around, forced tokens, beams: the folder whole, and back."""
    rng = np.random.default_rng(seed)
    folder, task = tmp_path / "bart", (Summarizer, Translator)[seed % 2]
    theirs = bart_tokenizer(folder, in_one_file=bool(rng.integers(2)))
    names = theirs.convert_ids_to_tokens(range(len(theirs)))
    unspeakable = [i for i, name in enumerate(names) if not name.replace("Ġ", " ").isascii() or i in (3, 4)]
    entries = REFERENCES["bart"].draw(rng) | {"vocab_size": len(theirs), "max_position_embeddings": 80}
    model = REFERENCES["bart"].make(entries, rng)
    settings = draw_settings(rng, len(theirs), 2, unspeakable)
    settings |= {"decoder_start_token_id": 2, "pad_token_id": 1}
    if rng.integers(2):
        settings["forced_bos_token_id"] = 0
    write(model, settings, folder, ["generation_config.json", "config.json"][rng.integers(2)])
    task.from_huggingface(folder).save(tmp_path / "task")
    task.load(tmp_path / "task").save_huggingface(tmp_path / "ours")
    ours = task.from_huggingface(tmp_path / "ours")
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    batch = theirs(TEXTS, padding=True, return_tensors="pt")
    assert read(TEXTS, padding=True)["input_ids"] == batch["input_ids"].tolist()
    for one in (folder, tmp_path / "ours"):
        model = transformers.BartForConditionalGeneration.from_pretrained(one).eval()
        with torch.no_grad():
            rows = model.generate(**batch)
        ids = ours.generate_ids(batch["input_ids"], batch["attention_mask"])
        same = assert_same_tokens(ids, rows.numpy(), 1, log_probability(model, batch))
    both = zip(ours.generate(TEXTS), theirs.batch_decode(rows, skip_special_tokens=True), strict=True)
    assert all(a == b for (a, b), is_same in zip(both, same, strict=True) if is_same)
    with torch.no_grad():
        rows = model.generate(**batch, max_new_tokens=7, num_beams=1, forced_bos_token_id=5)
    answers = ours.generate(TEXTS, max_new_tokens=7, beam_size=1, forced_first_id=5)
    assert answers == theirs.batch_decode(rows, skip_special_tokens=True)


@pytest.mark.parametrize("num_beams", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_bart_compares_with_its_source(num_beams, tmp_path):
    """A text alone: of a batch, transformers counts the padding as tokens of the source."""
    rng = np.random.default_rng(num_beams)
    theirs = bart_tokenizer(tmp_path / "bart", in_one_file=True)
    sizes = REFERENCES["bart"].draw(rng) | {"vocab_size": len(theirs), "max_position_embeddings": 80}
    settings = {"decoder_start_token_id": 2, "pad_token_id": 1, "eos_token_id": 2, "min_length": 12}
    names = theirs.convert_ids_to_tokens(range(len(theirs)))
    settings["suppress_tokens"] = [i for i, name in enumerate(names) if not name.replace("Ġ", "").isalpha()]
    settings |= {"max_length": 16, "early_stopping": num_beams > 1}
    more = {"encoder_repetition_penalty": 30.0, "encoder_no_repeat_ngram_size": 1, "stop_strings": None}
    model, batch = REFERENCES["bart"].make(sizes, rng), theirs(TEXTS[1:2], return_tensors="pt")
    answers = []
    for name, value in [("num_beams", num_beams), *more.items()]:  # one entry more each time
        settings[name] = value or theirs.decode(answers[-1][0][3:5])
        write(model, settings, tmp_path / "bart", "generation_config.json")
        ours = Translator.from_huggingface(tmp_path / "bart")
        with torch.no_grad():
            rows = model.generate(**batch, tokenizer=theirs).numpy()
        ids = ours.generate_ids(batch["input_ids"], batch["attention_mask"])
        assert_same_tokens(ids, rows, 1, log_probability(model, batch))
        if num_beams == 1:
            assert rows.tolist() not in answers[-1:], f"{name} changes nothing"
        answers.append(rows.tolist())
    ours.save_huggingface(tmp_path / "ours")
    assert Translator.from_huggingface(tmp_path / "ours").config.decoding == ours.config.decoding


@SEEDS
def test_mbart_begins_with_the_target_language(seed, tmp_path):
    """As mBART does, by what the decoder starts with, and as mBART-50, by the first token forced."""
    from tests.data.tokenizers.test_sentencepiece_files import trained

    rng = np.random.default_rng(seed)
    folder, is_50 = tmp_path / "mbart", bool(seed % 2)
    folder.mkdir()
    (folder / "sentencepiece.bpe.model").write_bytes(trained("mbart"))
    kind = "MBart50Tokenizer" if is_50 else "MBartTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, "src_lang": "en_XX"}))
    theirs = getattr(transformers, kind).from_pretrained(folder, src_lang="de_DE")
    codes = theirs.convert_tokens_to_ids(["de_DE", "en_XX", "ro_RO"])
    entries = REFERENCES["mbart"].draw(rng) | {"vocab_size": len(theirs), "max_position_embeddings": 80}
    model = REFERENCES["mbart"].make(entries, rng)
    settings = draw_settings(rng, len(theirs), 2, [3]) | {"pad_token_id": 1}
    settings["decoder_start_token_id"] = 2 if is_50 else codes[1]
    write(model, settings, folder, "generation_config.json")
    ours = Translator.from_huggingface(folder, source_language="de_DE", target_language="ro_RO")
    batch = theirs(TEXTS, padding=True, return_tensors="pt")
    target = {"forced_bos_token_id" if is_50 else "decoder_start_token_id": codes[2]}
    with torch.no_grad():
        rows = model.generate(**batch, **target)
    sources = [row for (row,), _ in ours.answerer.read_all(TEXTS)]
    kept = [row[mask > 0].tolist() for row, mask in zip(*map(np.asarray, batch.values()), strict=True)]
    assert sources == kept
    assert_same_tokens(ours.generate_ids(batch["input_ids"], batch["attention_mask"]), rows.numpy(), 1)
    assert codes[2] in rows[0, :2]
    ours.save_huggingface(tmp_path / "ours")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert again(TEXTS, padding=True)["input_ids"] == batch["input_ids"].tolist()
    theirs.save_pretrained(tmp_path / "kept")  # with a tokenizer.json for German
    path = tmp_path / "kept" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"src_lang": "ro_RO"}))
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "kept")
    around = read_huggingface_special_tokens(path.parent, read_huggingface_tokenizer(path.parent))
    assert [*around.prefix, *around.suffix] == again("")["input_ids"] and codes[2] in again("")["input_ids"]


@SEEDS
def test_gpt2(seed, tmp_path):
    rng = np.random.default_rng(seed)
    model = draw_gpt2(rng)
    size = model.config.vocab_size
    settings = draw_settings(rng, size, 3, [7, 8]) | {"pad_token_id": 4}
    source = {"encoder_repetition_penalty": 1.5, "encoder_no_repeat_ngram_size": 2}
    settings |= {name: value for name, value in source.items() if rng.integers(2)}
    write(model, settings, tmp_path / "gpt2", ["generation_config.json", "config.json"][rng.integers(2)])
    ours = TextGenerator.from_huggingface(tmp_path / "gpt2")
    ours.save_huggingface(tmp_path / "ours")
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours").eval()
    prompts = torch.from_numpy(rng.integers(5, size, (3, 5)))
    for theirs in (model, again):
        with torch.no_grad():
            rows = theirs.generate(prompts, attention_mask=torch.ones_like(prompts)).numpy()
        assert_same_tokens(ours.generate_ids(prompts.numpy()), rows, 4)
