"""Decoding with the key/value cache against running the model anew over the whole prefix.

    python -m benchmarks.decode

The small Transformer with random weights, 8 sources of 32 tokens, 64 new tokens each, interleaved
rounds in one process; both loops are traced once, and must give the same tokens.
"""

import argparse
import os
import statistics
import time

import numpy as np

from benchmarks.rounds import parse, ratios, record

BATCH, SOURCE_LENGTH, NEW_TOKENS, START = 8, 32, 64, 1


def decode_without_cache(model, context):
    """Greedy decoding that runs encoder and decoder over everything at each step."""
    import tensorflow as tf

    def advance(index, token_ids):
        prefix = token_ids[:, :index]
        logits = model(
            {**context, "decoder_token_ids": prefix, "decoder_padding_mask": tf.ones_like(prefix, tf.bool)}
        )
        return index + 1, tf.concat(
            [prefix, tf.argmax(logits[:, -1:], -1, tf.int32), token_ids[:, index + 1 :]], 1
        )

    token_ids = tf.concat([tf.fill([BATCH, 1], START), tf.zeros([BATCH, NEW_TOKENS], tf.int32)], 1)
    shapes = tf.TensorShape([]), tf.TensorShape([BATCH, None])
    _, token_ids = tf.while_loop(lambda index, _: index <= NEW_TOKENS, advance, (1, token_ids), shapes)
    return token_ids


def main():
    parser = argparse.ArgumentParser("benchmarks.decode", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parse(parser)
    import keras
    import tensorflow as tf

    from keras_tfm.generation import Decoder
    from keras_tfm.heads import LanguageModel
    from keras_tfm.models import Transformer

    keras.utils.set_random_seed(0)
    model = LanguageModel(Transformer.from_size("small"))
    token_ids = np.random.default_rng(0).integers(4, 8_000, (BATCH, SOURCE_LENGTH)).astype("int32")
    context = {"token_ids": tf.constant(token_ids), "padding_mask": tf.ones([BATCH, SOURCE_LENGTH], tf.bool)}
    loops = {
        "cached": tf.function(
            lambda: Decoder(model, NEW_TOKENS)(tf.fill([BATCH, 1], START), context=context)
        ),
        "recomputed": tf.function(lambda: decode_without_cache(model, context)),
    }
    answers = [loop().numpy() for loop in loops.values()]
    print(f"equal tokens: {np.mean(answers[0] == answers[1]):.2%}")
    rates = {name: [] for name in loops}
    for _ in range(options.rounds):
        for name, loop in loops.items():
            began = time.perf_counter()
            loop().numpy()
            rates[name].append(BATCH * NEW_TOKENS / (time.perf_counter() - began))
    for name, own in rates.items():
        print(f"{name:12}{statistics.median(own):8.0f} tokens/s")
        ratio = ratios(rates, "cached", name)
        record("decoding", name, statistics.median(own), "tokens/s", ratio, "cached / this")
    print(f"cached is {statistics.median(ratio):.1f}x faster (min {min(ratio):.1f}, max {max(ratio):.1f})")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    main()
