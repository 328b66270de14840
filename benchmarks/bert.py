"""Pre-training BERT, its tokenizer and its checkpoints: this package, KerasHub, transformers on torch.

    python -m benchmarks.bert                     a training step of masked language modelling
    python -m benchmarks.bert --part tokenizer    text to ids, in the graph: --text FILE, or Python's manual
    python -m benchmarks.bert --part loading      BERT-base's safetensors into a built model

The step: 4 layers 512 wide, 16 rows of 128 tokens, of which 20 are masked and gathered before the product
with the vocabulary of 30,522; dropout 0.1 everywhere, AdamW (fused in torch), float32, every core. KerasHub
runs with jit_compile on and off. Where the CPU multiplies bfloat16 by itself, this package and torch
run in it too, by the policy "mixed_bfloat16" and by autocast. Needs the [parity] extra.
"""

import argparse
import os
import pathlib
import pydoc_data.topics
import statistics
import sys
import tempfile
import time

import numpy as np

from benchmarks.rounds import (
    compare,
    import_torchvision,
    parse,
    prepare_keras,
    prepare_torch,
    ratios,
    record,
    serve,
)

NUM_LAYERS, DIM, NUM_HEADS, HIDDEN, VOCABULARY, DROPOUT = 4, 512, 8, 2048, 30_522, 0.1
BATCH, LENGTH, MASKED = 16, 128, 20
MODULE = "benchmarks.bert"
TRAINING = ("keras_tfm", "keras_hub jit", "keras_hub no jit", "torch")
IN_BFLOAT16 = ("keras_tfm bfloat16", "torch bfloat16")
TOKENIZERS = ("keras_tfm tokenizer", "keras_hub tokenizer")
LINES_AT_ONCE = 1_000


def flops_per_token():
    """Useful operations of a training step per token of the batch: 6 a weight, and attention's."""
    block = 4 * DIM**2 + 2 * DIM * HIDDEN + 2 * LENGTH * DIM
    head = MASKED / LENGTH * (DIM**2 + DIM * VOCABULARY)
    return 6 * (NUM_LAYERS * block + head)


def random_batch():
    """Inputs, the places to predict among them, and labels (B, M)."""
    rng = np.random.default_rng(0)
    token_ids = rng.integers(5, VOCABULARY, (BATCH, LENGTH), np.int32)
    mask = np.arange(LENGTH) < rng.integers(LENGTH - LENGTH // 8, LENGTH + 1, (BATCH, 1))
    places = np.tile(np.arange(LENGTH - LENGTH // 8, dtype="int32"), (BATCH, 1))  # of the shortest row
    inputs = {
        "token_ids": token_ids * mask,
        "padding_mask": mask,
        "segment_ids": np.tile(np.arange(LENGTH, dtype="int32") // (LENGTH // 2), (BATCH, 1)) * mask,
        "mask_positions": rng.permuted(places, axis=1)[:, :MASKED],
    }
    return inputs, rng.integers(5, VOCABULARY, (BATCH, MASKED), np.int32)


def keras_steps(model, optimizer, loss, inputs, labels, jit_compile):
    """A function that trains `model` on the batch and returns its tokens."""
    model.compile(optimizer, loss, jit_compile=jit_compile)
    weights = np.ones(labels.shape, "float32")

    def step():
        model.train_on_batch(inputs, labels, weights)
        return BATCH * LENGTH

    return step


def run_keras_tfm(jit_compile=True):
    from keras_tfm.heads import MaskedLM, TokenCrossEntropy
    from keras_tfm.models import BERT
    from keras_tfm.training import AdamW

    model = MaskedLM(BERT.from_size("small", dropout=DROPOUT, attention_dropout=DROPOUT, pooler=False))
    return keras_steps(model, AdamW(1e-4, 0.01), TokenCrossEntropy(), *random_batch(), jit_compile)


def run_keras_hub(jit_compile):
    import keras
    import keras_hub

    backbone = keras_hub.models.BertBackbone(VOCABULARY, NUM_LAYERS, NUM_HEADS, DIM, HIDDEN, DROPOUT, 512)
    places = keras.Input((None,), dtype="int32", name="mask_positions")
    head = keras_hub.layers.MaskedLMHead(
        token_embedding=backbone.token_embedding, intermediate_activation="gelu"
    )
    logits = head(backbone.output["sequence_output"], mask_positions=places)
    model = keras.Model({**backbone.input, "mask_positions": places}, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras_steps(model, keras.optimizers.AdamW(1e-4, 0.01), loss, *random_batch(), jit_compile)


def run_torch(in_bfloat16=False):
    import torch

    import_torchvision()
    from transformers import BertConfig, BertForMaskedLM

    device = prepare_torch(in_bfloat16)
    torch.manual_seed(0)
    config = BertConfig(  # its dropouts are 0.1
        vocab_size=VOCABULARY,
        hidden_size=DIM,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=NUM_HEADS,
        intermediate_size=HIDDEN,
    )
    model = BertForMaskedLM._from_config(config, attn_implementation="sdpa").train().to(device)
    inputs, labels = random_batch()
    batch = [torch.from_numpy(x.astype("int64")).to(device) for x in (*inputs.values(), labels)]
    token_ids, mask, segments, positions, labels = batch
    rows = torch.arange(BATCH, device=device)[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01, fused=True)

    def step():
        hidden = model.bert(token_ids, mask, segments).last_hidden_state
        logits = model.cls(hidden[rows, positions])  # the masked places alone reach the vocabulary
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        return BATCH * LENGTH

    return step


def read_text(path):
    """Lines of a text file, or of Python's own manual."""
    if path:
        from keras_tfm.data import read_lines

        return [line for line in read_lines(path) if line.strip()][:20_000]
    topics = pydoc_data.topics.topics.values()
    return [line for topic in topics for line in topic.splitlines() if line.strip()]


def run_tokenizer(name, path):
    """Steps that tokenize all lines, some at once, by a vocabulary trained on them; both the same."""
    import tensorflow as tf

    from keras_tfm.data import BERTTokenizer

    lines = read_text(path)
    ours = BERTTokenizer.train(lines, 8_000)
    tokenize = ours.tokenize
    if name.startswith("keras_hub"):
        import keras_hub

        tokenize = keras_hub.tokenizers.BertTokenizer(list(ours.vocabulary), lowercase=True).tokenize
    spec = [tf.TensorSpec([None], tf.string)]
    graph = tf.function(lambda x: tokenize(x).flat_values, input_signature=spec, autograph=False)
    chunks = [tf.constant(lines[i : i + LINES_AT_ONCE]) for i in range(0, len(lines), LINES_AT_ONCE)]
    return lambda: sum(int(graph(chunk).shape[0]) for chunk in chunks)


def measure_loading(rounds):
    """Seconds to load transformers' BERT-base into a built model, beside the seconds to read its file."""
    from keras_tfm.convert import bert, keymap
    from keras_tfm.convert.folder import read_weights
    from keras_tfm.models import BERT

    model = BERT.from_size("base")
    rows = bert.FAMILY.rows_with(None, "")
    times = {"reading the file": [], "loading into the model": []}
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent, "bert")
        model.save_huggingface(folder)
        path = folder / "model.safetensors"

        def load():
            keymap.load(model, read_weights(folder)[0], rows, path)

        for _ in range(rounds):
            for name, act in zip(times, (path.read_bytes, load), strict=True):
                began = time.perf_counter()
                act()
                times[name].append(time.perf_counter() - began)
        size = path.stat().st_size / 2**20
    print(f"\nBERT-base, {size:.0f} MiB of safetensors in the cache, {rounds} rounds, ratio to reading them")
    for name, seconds in times.items():
        ratio = ratios(times, name, "reading the file")
        print(f"{name:24}{statistics.median(seconds):8.3f} s{statistics.median(ratio):8.2f}")
        record("loading BERT-base", name, statistics.median(seconds), "s", ratio, "this / reading the file")


def run_worker(name, text):
    """Serve the steps of one peer."""
    in_bfloat16 = name in IN_BFLOAT16
    if not name.startswith("torch"):
        prepare_keras("bfloat16" if in_bfloat16 else None)
    if name in TOKENIZERS:
        return serve(run_tokenizer(name, text))
    if name.startswith("keras_hub"):
        return serve(run_keras_hub(name == "keras_hub jit"))
    if name.startswith("torch"):
        return serve(run_torch(in_bfloat16))
    serve(run_keras_tfm("auto" if in_bfloat16 else True))


def main():
    parser = argparse.ArgumentParser("benchmarks.bert", description=__doc__.partition("\n")[0])
    parser.add_argument("--part", default="training", choices=["training", "tokenizer", "loading"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2, help="training steps a round")
    parser.add_argument("--peers", nargs="+", choices=(*TRAINING, *IN_BFLOAT16), help="all that run here")
    parser.add_argument("--text", metavar="FILE", default="", help="lines for the tokenizers")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker:
        return run_worker(options.worker, options.text)
    if options.part == "loading":
        return measure_loading(options.rounds)
    if options.part == "tokenizer":
        text = ["--text", options.text] if options.text else []
        compare("raw text to ids", MODULE, TOKENIZERS, options.rounds, options.steps, 2, text)
        return
    from keras_tfm.jit import multiplies_bfloat16

    peers = TRAINING + (IN_BFLOAT16 if options.device == "cpu" and multiplies_bfloat16() else ())
    compare(
        "a step of masked language modelling",
        MODULE,
        options.peers or peers,
        options.rounds,
        options.steps,
        warmup=3,
        flops_per_token=flops_per_token(),
    )


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
