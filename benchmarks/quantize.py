"""A trained language model in less memory: weights in bfloat16, or in 8 bits by Keras's quantisation.

    python -m benchmarks.quantize RUN FILE

RUN is what `keras-tfm train generate` wrote, FILE a text. Printed are the weights' bytes, the perplexity and
the tokens a second of greedy decoding (batch 1, 64 new tokens), each as a ratio to float32. Activations are
not quantised: each product first turns its weights into floats, so a CPU saves memory and no time.
"""

import argparse
import os
import sys
import time

from benchmarks.rounds import parse, record

KINDS = ("float32", "bfloat16", "int8")
NEW = 64


def load(run, kind):
    """The task in RUN with its weights of that kind."""
    import keras

    from keras_tfm import tasks

    keras.config.set_dtype_policy("bfloat16" if kind == "bfloat16" else "float32")
    generator = tasks.load(run, quantization="int8" if kind == "int8" else None)
    keras.config.set_dtype_policy("float32")
    return generator


def num_bytes(model):
    return sum(int(weight.shape.num_elements()) * weight.value.dtype.size for weight in model.weights)


def main():
    parser = argparse.ArgumentParser("benchmarks.quantize", description=__doc__.partition("\n")[0])
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    options = parse(parser)
    from keras_tfm.data import read_texts

    texts = [text[-50_000:] for text in read_texts(options.file)]
    generators = {kind: load(options.run, kind) for kind in KINDS}
    prompt, seconds = [texts[0][:16]], dict.fromkeys(KINDS, float("inf"))
    for _ in range(1 + options.rounds):  # the first compiles
        for kind, generator in generators.items():
            began = time.perf_counter()
            generator.generate(prompt, max_new_tokens=NEW)
            seconds[kind] = min(seconds[kind], time.perf_counter() - began)
    size, perplexity = {}, {}
    for kind, generator in generators.items():
        size[kind] = num_bytes(generator.model)
        perplexity[kind] = generator.evaluate(texts)["perplexity"]
        record("weights", kind, size[kind], "bytes", [size[kind] / size["float32"]], "this / float32")
        relative = perplexity[kind] / perplexity["float32"]
        record("perplexity", kind, perplexity[kind], "", [relative], "this / float32")
        record(
            "decoding",
            kind,
            NEW / seconds[kind],
            "tokens/s",
            [seconds["float32"] / seconds[kind]],
            "this / float32",
        )
        print(
            f"{kind:9} {size[kind]:12,} bytes ({size[kind] / size['float32']:.3f}x)"
            f"  perplexity {perplexity[kind]:.3f} ({relative:.4f}x)"
            f"  {NEW / seconds[kind]:7.1f} tokens/s ({seconds['float32'] / seconds[kind]:.2f}x)"
        )


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
