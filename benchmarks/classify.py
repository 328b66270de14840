"""Fine-tuning an encoder end to end, raw labelled lines in: this package, and KerasHub's pipeline.

    python -m benchmarks.classify --data FILE        tab-separated: a text and its label

Both train the same BERT (4 layers 256 wide) with dropout 0.1 and AdamW in float32, from one vocabulary of
8,000 pieces. KerasHub's pipeline follows its guides: tokenize and pack in `map`, every row as long as the
longest of the data, jit_compile on and off. Counted are real tokens, padding not: a step here has the rows
that fill 1,024 tokens, some 64 of the manual's lines, for 32 of KerasHub's. Needs the [parity] extra.
"""

import argparse
import itertools
import os
import sys

import numpy as np

from benchmarks.rounds import compare, parse, prepare_keras, serve

NUM_LAYERS, DIM, NUM_HEADS, HIDDEN, DROPOUT, VOCABULARY = 4, 256, 4, 1024, 0.1, 8_000
BATCH = 32
MODULE = "benchmarks.classify"
PEERS = ("keras_tfm", "keras_hub jit", "keras_hub no jit")


def keras_steps(model, optimizer, loss, batches, jit_compile):
    """A function that trains `model` on the next batch and returns its real tokens."""
    model.compile(optimizer, loss, jit_compile=jit_compile)

    def step():
        batch = next(batches)
        model.train_on_batch(*batch)
        return int(np.sum(batch[0]["padding_mask"]))

    return step


def run_keras_tfm(examples):
    from keras_tfm.heads.classification import classification_loss
    from keras_tfm.tasks import TextClassifier
    from keras_tfm.training import AdamW

    sizes = {"num_layers": NUM_LAYERS, "dim": DIM, "num_heads": NUM_HEADS, "intermediate_dim": HIDDEN}
    dropouts = {"dropout": DROPOUT, "attention_dropout": DROPOUT}
    task = TextClassifier.from_examples(examples, "mini", VOCABULARY, changes={**sizes, **dropouts})
    batches = task.batches(examples, task.training)  # as `fit` makes them
    return keras_steps(task.model, AdamW(1e-4, 0.01), classification_loss(), iter(batches.epochs()), True)


def run_keras_hub(examples, jit_compile):
    import keras
    import keras_hub
    import tensorflow as tf

    from keras_tfm.data import BERTTokenizer

    pieces = BERTTokenizer.train(examples.texts, VOCABULARY).vocabulary
    tokenizer = keras_hub.tokenizers.BertTokenizer(vocabulary=list(pieces), lowercase=True)
    lines = tf.data.Dataset.from_tensor_slices(examples.texts).batch(1000)
    lengths = lines.map(lambda lines: tf.reduce_max(tokenizer(lines).row_lengths()))
    length = int(lengths.reduce(tf.constant(0, tf.int64), tf.maximum)) + 2
    packer = keras_hub.layers.MultiSegmentPacker(
        length, tokenizer.cls_token_id, tokenizer.sep_token_id, pad_value=tokenizer.pad_token_id
    )

    def prepare(texts, labels):
        token_ids, segment_ids = packer(tokenizer(texts))
        mask = token_ids != tokenizer.pad_token_id
        return {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": mask}, labels

    names = {name: place for place, name in enumerate(sorted(set(examples.labels)))}
    labels = [names[label] for label in examples.labels]
    dataset = tf.data.Dataset.from_tensor_slices((examples.texts, labels)).shuffle(len(labels), seed=0)
    dataset = dataset.batch(BATCH, drop_remainder=True).map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    batches = itertools.chain.from_iterable(iter(dataset.prefetch(4)) for _ in itertools.count())
    backbone = keras_hub.models.BertBackbone(
        len(pieces), NUM_LAYERS, NUM_HEADS, DIM, HIDDEN, DROPOUT, max(512, length)
    )
    model = keras_hub.models.BertTextClassifier(backbone, len(names), preprocessor=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras_steps(model, keras.optimizers.AdamW(1e-4, 0.01), loss, batches, jit_compile)


def run_worker(name, files):
    """Serve the training steps of one peer."""
    from keras_tfm.data.sources.labelled import read_labelled_texts

    examples = read_labelled_texts(files)
    runs = {
        "keras_tfm": run_keras_tfm,
        "keras_hub jit": lambda examples: run_keras_hub(examples, True),
        "keras_hub no jit": lambda examples: run_keras_hub(examples, False),
    }
    prepare_keras()
    serve(runs[name](examples))


def main():
    parser = argparse.ArgumentParser("benchmarks.classify", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE", help="as `train classify` takes")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20, help="training steps a round")
    parser.add_argument("--warmup", type=int, default=150, help="steps before, in which shapes compile")
    parser.add_argument("--peers", nargs="+", default=PEERS, choices=PEERS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker:
        return run_worker(options.worker, options.data)
    title = "Fine-tuning, raw lines in"
    sizes = (options.rounds, options.steps, options.warmup)
    compare(title, MODULE, options.peers, *sizes, arguments=["--data", *options.data])


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
