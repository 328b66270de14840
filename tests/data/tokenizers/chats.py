"""Small tokenizers like Llama 3's, Qwen2's and Mistral's, written by the `tokenizers` library."""

import functools
import json

import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers, processors

from keras_tfm.data.tokenizers.splitting import RULES

LINES = ["The cat isn't on the mat; it's 2024 km away.\n\n    def f(x): return x == 'café'\n"] * 9
LINES += [
    f"{word} — words, HELLO'S {i * 37} naïve Ελλάδα 日本 aaaa ----==== {' ' * i}x"
    for i, word in enumerate(LINES)
]
NAMES = {
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>"],
    "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "tekken": ["<s>", "<unk>", "[INST]", "[/INST]", "</s>"],
}
OPTIONS = {
    "llama3": {"bos_token": NAMES["llama3"][0], "eos_token": "<|eot_id|>"},
    "qwen2": {
        "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
        "add_prefix_space": False,
    },
    "tekken": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
}  # fmt: skip
CLASSES = {
    "llama3": "PreTrainedTokenizerFast", "qwen2": "Qwen2Tokenizer", "tekken": "PreTrainedTokenizerFast",
}  # fmt: skip
STARTS = {"llama3": "<|begin_of_text|>", "tekken": "<s>"}  # what stands before a text


def pre_tokenizer(kind):
    words = pre_tokenizers.Split(tokenizers.Regex(RULES[kind].pattern), behavior="isolated")
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@functools.cache
def learnt(kind):
    """(Vocabulary, merges) of byte pairs of LINES: one merge for each token, as Qwen2's."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = pre_tokenizer(kind)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    model.train_from_iterator(LINES, trainer)
    model = json.loads(model.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def all_merges(vocabulary):
    """Every way to make a token of two, by rank: what Llama 3's list is made of."""
    pairs = [(token[:i], token[i:]) for token in vocabulary for i in range(1, len(token))]
    pairs = [pair for pair in pairs if vocabulary.keys() >= {*pair}]
    return sorted(pairs, key=lambda pair: [vocabulary[x] for x in ("".join(pair), *pair)])


def library_tokenizer(kind):
    """A tokenizer of the library like those of published folders of the `kind`, a key of NAMES."""
    vocabulary, merges = learnt(kind)
    if kind != "qwen2":
        merges = all_merges(vocabulary)
        # Words that no merges yield.
        vocabulary = vocabulary | {
            word: len(vocabulary) + i for i, word in enumerate(["Ġunmerged", "zzq", "qz"])
        }
    if kind == "tekken":  # the special tokens come first, and the model has them too
        names = NAMES[kind]
        vocabulary = {x: i + len(names) for x, i in vocabulary.items()} | {x: i for i, x in enumerate(names)}
    whole = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=kind != "qwen2"))
    whole.pre_tokenizer, whole.decoder = pre_tokenizer(kind), decoders.ByteLevel()
    whole.add_special_tokens([tokenizers.AddedToken(x, special=True, normalized=False) for x in NAMES[kind]])
    whole.add_tokens([tokenizers.AddedToken("<think>", normalized=False), tokenizers.AddedToken("é!")])
    of_bytes = processors.ByteLevel(trim_offsets=False)
    whole.post_processor = of_bytes
    if kind == "qwen2":
        whole.normalizer = normalizers.NFC()
    else:
        name = STARTS[kind]
        start = [(name, whole.token_to_id(name))]
        template = processors.TemplateProcessing(
            single=f"{name} $A", pair=f"{name} $A {name}:1 $B:1", special_tokens=start
        )
        whole.post_processor = processors.Sequence([of_bytes, template])
    return whole


def write_folder(kind, folder, **options):
    """Write tokenizer.json and tokenizer_config.json, with `options` changed, and return the tokenizer."""
    whole = library_tokenizer(kind)
    whole.save(str(folder / "tokenizer.json"))
    options = {"tokenizer_class": CLASSES[kind]} | OPTIONS[kind] | options
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return whole
