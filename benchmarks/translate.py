"""Training a Transformer that translates: this package, KerasHub's layers, torch.nn.Transformer.

    python -m benchmarks.translate                           the same model on the same batches
    python -m benchmarks.translate --data FILE FILE2        and end to end on real text: raw pairs in,
                                                             real tokens counted, padding not

All train the same pre-norm model (3 + 3 layers, 256 wide, 4 heads, 1,024 hidden, tied output, dropout
0.1) in float32 with Adam on every core. KerasHub runs with jit_compile on and off; its end-to-end
pipeline pads every pair to the longest, as its own guide to translation does, 64 pairs a step, where ours has
as many as fill the same number of tokens. Needs the [parity] extra.
"""

import argparse
import itertools
import os
import sys
import tempfile

import numpy as np

from benchmarks.rounds import compare, parse, prepare_keras, prepare_torch, serve

NUM_LAYERS, DIM, NUM_HEADS, HIDDEN, VOCABULARY, DROPOUT = 3, 256, 4, 1024, 8_000, 0.1
BATCH, LENGTH = 64, 32
MODULE = "benchmarks.translate"
PEERS = ("keras_tfm", "keras_hub jit", "keras_hub no jit", "torch")


def flops_per_token():
    """Useful operations of a training step per token of source or target: 6 a weight, and attention's."""
    encoder = NUM_LAYERS * (4 * DIM**2 + 2 * DIM * HIDDEN + 2 * LENGTH * DIM)
    decoder = NUM_LAYERS * (8 * DIM**2 + 2 * DIM * HIDDEN + 4 * LENGTH * DIM) + DIM * VOCABULARY
    return 6 * (encoder + decoder) / 2


def random_batch():
    """One batch of random tokens, rows up to an eighth shorter than the rest: as `PairBatches` gives."""
    rng = np.random.default_rng(0)
    token_ids, decoder_ids, labels = rng.integers(4, VOCABULARY, (3, BATCH, LENGTH), np.int32)
    masks = np.arange(LENGTH) < rng.integers(LENGTH - LENGTH // 8, LENGTH + 1, (2, BATCH, 1))
    inputs = {
        "token_ids": token_ids * masks[0],
        "padding_mask": masks[0],
        "decoder_token_ids": decoder_ids * masks[1],
        "decoder_padding_mask": masks[1],
    }
    return inputs, labels * masks[1], masks[1].astype("float32")


def real_tokens(batch):
    """Tokens of a batch that are not padding."""
    return int(np.sum(batch[0]["padding_mask"])) + int(np.sum(batch[2]))


def read(files):
    """The pairs, and the joint tokenizer that all use."""
    from keras_tfm.data import read_pairs, train_tokenizer

    pairs = read_pairs(files)
    return pairs, train_tokenizer([*pairs.sources, *pairs.targets], vocabulary_size=VOCABULARY)


def keras_steps(model, loss, batches, jit_compile):
    """A function that trains `model` on the next batch and returns its real tokens."""
    import keras

    model.compile(keras.optimizers.Adam(1e-4), loss, jit_compile=jit_compile)

    def step():
        batch = next(batches)
        model.train_on_batch(*batch)
        return real_tokens(batch)

    return step


def run_keras_tfm(files):
    from keras_tfm.data import PairBatches
    from keras_tfm.heads import LanguageModel, TokenCrossEntropy
    from keras_tfm.models import Transformer

    vocabulary_size = VOCABULARY
    batches = itertools.repeat(random_batch())
    if files:
        pairs, tokenizer = read(files)
        vocabulary_size = tokenizer.vocabulary_size
        prepared = PairBatches(*pairs, tokenizer, tokenizer, batch_tokens=BATCH * 2 * LENGTH, seed=0)
        batches = iter(prepared.epochs())
    model = LanguageModel(Transformer.from_size("small", vocabulary_size=vocabulary_size, dropout=DROPOUT))
    return keras_steps(model, TokenCrossEntropy(), batches, jit_compile=True)


def run_keras_hub(files, jit_compile):
    import keras
    import keras_hub

    vocabulary_size = VOCABULARY
    batches = itertools.repeat(random_batch())
    if files:
        pairs, tokenizer = read(files)
        vocabulary_size = tokenizer.vocabulary_size
        batches = fixed_length_batches(pairs, tokenizer)
    embedding = keras_hub.layers.ReversibleEmbedding(vocabulary_size, DIM)
    position = keras_hub.layers.SinePositionEncoding()
    inputs = {
        name: keras.Input((None,), dtype=dtype, name=name)
        for name, dtype in (
            ("token_ids", "int32"),
            ("padding_mask", "bool"),
            ("decoder_token_ids", "int32"),
            ("decoder_padding_mask", "bool"),
        )
    }

    def embed(token_ids):
        x = embedding(token_ids) * DIM**0.5
        return keras.layers.Dropout(DROPOUT)(x + position(x))

    encoded, x = embed(inputs["token_ids"]), embed(inputs["decoder_token_ids"])
    for _ in range(NUM_LAYERS):
        encoded = keras_hub.layers.TransformerEncoder(HIDDEN, NUM_HEADS, DROPOUT, normalize_first=True)(
            encoded, padding_mask=inputs["padding_mask"]
        )
    encoded = keras.layers.LayerNormalization()(encoded)
    for _ in range(NUM_LAYERS):
        x = keras_hub.layers.TransformerDecoder(HIDDEN, NUM_HEADS, DROPOUT, normalize_first=True)(
            x,
            encoded,
            decoder_padding_mask=inputs["decoder_padding_mask"],
            encoder_padding_mask=inputs["padding_mask"],
        )
    logits = embedding(keras.layers.LayerNormalization()(x), reverse=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras_steps(keras.Model(inputs, logits), loss, batches, jit_compile)


def fixed_length_batches(pairs, tokenizer):
    """KerasHub's pipeline: tokenize in `map`, pack every sequence to the longest of the data, batch."""
    import keras_hub
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        hub = keras_hub.tokenizers.SentencePieceTokenizer(str(tokenizer.save(folder)))
    lines = tf.data.Dataset.from_tensor_slices([*pairs.sources, *pairs.targets]).batch(1000)
    lengths = lines.map(lambda lines: tf.reduce_max(hub(lines).row_lengths()))
    length = int(lengths.reduce(tf.constant(0, tf.int64), tf.maximum)) + 1
    encoder_packer = keras_hub.layers.StartEndPacker(length, end_value=tokenizer.end_id, pad_value=0)
    decoder_packer = keras_hub.layers.StartEndPacker(length + 1, tokenizer.start_id, tokenizer.end_id, 0)

    def prepare(sources, targets):
        token_ids, targets = encoder_packer(hub(sources)), decoder_packer(hub(targets))
        mask = targets[:, 1:] != 0
        inputs = {
            "token_ids": token_ids,
            "padding_mask": token_ids != 0,
            "decoder_token_ids": targets[:, :-1],
            "decoder_padding_mask": targets[:, :-1] != 0,
        }
        return inputs, targets[:, 1:], tf.cast(mask, tf.float32)

    dataset = tf.data.Dataset.from_tensor_slices(tuple(pairs)).shuffle(len(pairs.sources), seed=0)
    dataset = dataset.batch(BATCH).map(prepare, num_parallel_calls=tf.data.AUTOTUNE).prefetch(4)
    return itertools.chain.from_iterable(iter(dataset) for _ in itertools.count())


def run_torch(files):
    import torch
    from torch import nn

    device = prepare_torch()
    torch.manual_seed(0)
    inputs, labels, weights = random_batch()
    batch = [torch.from_numpy(x).to(device) for x in (*inputs.values(), labels)]
    embedding = nn.Embedding(VOCABULARY, DIM, device=device)
    nn.init.normal_(embedding.weight, std=DIM**-0.5)
    model = nn.Transformer(
        DIM, NUM_HEADS, NUM_LAYERS, NUM_LAYERS, HIDDEN, DROPOUT, batch_first=True, norm_first=True
    ).to(device)
    angles = torch.arange(LENGTH)[:, None] / 10_000 ** (torch.arange(0, DIM, 2) / DIM)
    position = torch.stack([angles.sin(), angles.cos()], -1).reshape(LENGTH, DIM).to(device)
    dropout = nn.Dropout(DROPOUT)
    causal = nn.Transformer.generate_square_subsequent_mask(LENGTH, device, torch.bool)
    parameters = [*embedding.parameters(), *model.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-4, fused=True)
    tokens = real_tokens((inputs, labels, weights))

    def embed(token_ids):
        return dropout(embedding(token_ids) * DIM**0.5 + position)

    def step():
        token_ids, mask, decoder_ids, decoder_mask, labels = batch
        x = model(
            embed(token_ids),
            embed(decoder_ids),
            tgt_mask=causal,
            src_key_padding_mask=~mask,
            tgt_key_padding_mask=~decoder_mask,
            memory_key_padding_mask=~mask,
            tgt_is_causal=True,
        )
        logits = x @ embedding.weight.T
        nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().long(), ignore_index=0).backward()
        optimizer.step()
        optimizer.zero_grad()
        return tokens

    return step


def run_worker(name, files):
    """Serve the training steps of one peer."""
    runs = {
        "keras_tfm": run_keras_tfm,
        "keras_hub jit": lambda files: run_keras_hub(files, True),
        "keras_hub no jit": lambda files: run_keras_hub(files, False),
        "torch": run_torch,
    }
    if name != "torch":
        prepare_keras()
    serve(runs[name](files))


def main():
    parser = argparse.ArgumentParser("benchmarks.translate", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data", nargs="+", default=[], metavar="FILE", help="pairs, as keras-tfm train takes them"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="training steps a round")
    parser.add_argument("--peers", nargs="+", default=PEERS, choices=PEERS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker:
        return run_worker(options.worker, options.data)
    rounds, steps = options.rounds, options.steps
    compare(
        "the same batches", MODULE, options.peers, rounds, steps, warmup=3, flops_per_token=flops_per_token()
    )
    if options.data:
        peers = [name for name in options.peers if name != "torch"]
        files = ["--data", *options.data]
        compare("end to end on real text", MODULE, peers, rounds, 10 * steps, warmup=60, arguments=files)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
