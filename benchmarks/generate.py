"""Decoding with GPT-2: this package, its exports, KerasHub, transformers on torch.

    python -m benchmarks.generate                    batches of 1 and 8 greedily, 4 beams
    python -m benchmarks.generate --flat             what a token costs early and late in a long text
    python -m benchmarks.generate --peers torch "ctranslate2 int8" "onnx int8"
    python -m benchmarks.generate --exports --cases 1x1 8x1 32x1    the formats, and their latency

GPT-2 of 124 M random weights in float32, prompts of 32 tokens, 64 new ones that never end, on every
core. The last line says which share of the measured memory bandwidth reading all weights once a step
makes. KerasHub runs with jit_compile on and off; exports on CPUs alone. `--exports` compares this package
with its exports in every format, in 32 and in 8 bits. Needs the extras [parity] and [ctranslate2], for
`--exports` [ctranslate2,onnx,openvino,litert].
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time
import types

import numpy as np

from benchmarks.rounds import (
    compare,
    import_torchvision,
    parse,
    prepare_keras,
    prepare_torch,
    record,
    serve,
)

MODULE = "benchmarks.generate"
EXPORTS = tuple(
    f"{name}{bits}" for name in ("ctranslate2", "onnx", "openvino", "litert") for bits in ("", " int8")
)
PEERS = ("keras_tfm", "keras_hub jit", "keras_hub no jit", "torch", *EXPORTS[:2])
VOCABULARY, PROMPT, NEW, WEIGHT_BYTES = 50_257, 32, 64, 4 * 124_439_808


def prompts(batch):
    return np.random.default_rng(0).integers(0, VOCABULARY, (batch, PROMPT), "int32")


def memory_bandwidth(times=5):
    """Bytes a second of XLA's matrix-vector product, too large for any cache: the fastest reader here."""
    import tensorflow as tf

    matrix, vector = tf.ones((32_768, 4_096)), tf.ones(4_096)
    product = tf.function(tf.linalg.matvec, autograph=False, jit_compile=True)
    product(matrix, vector)
    best = min(timed(lambda: product(matrix, vector).numpy()) for _ in range(times))
    return 4 * matrix.shape.num_elements() / best


def timed(function):
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def make_model():
    import keras

    from keras_tfm.heads import LanguageModel
    from keras_tfm.models import GPT2

    keras.utils.set_random_seed(0)
    return LanguageModel(GPT2.from_size("gpt2"))


def run_keras_tfm(batch, beams):
    from keras_tfm.generation import CompiledDecoding, DecodingOptions

    decode, options = CompiledDecoding(make_model(), max_length=1024), DecodingOptions(NEW, beam_size=beams)
    return lambda: decode(options, prompts(batch)).numpy()


def run_export(batch, beams, name, quantization):
    """The export in the format `name`, run by `keras_tfm.serving`."""
    from keras_tfm.export import ctranslate2, formats, steps
    from keras_tfm.generation import DecodingOptions
    from keras_tfm.serving.writing import DECODERS
    from keras_tfm.tasks.text.writing import IDS, Writing

    model, options = make_model(), DecodingOptions(NEW, beam_size=beams, early_stopping=beams > 1)
    writing = Writing(model, None, 0, 0, (), (), options)
    signature = types.SimpleNamespace(function=writing, inputs=IDS, reads={"max_length": PROMPT})
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        if name == "ctranslate2":
            ctranslate2.write(model, folder / "model", quantization, start_id=0, end_id=0, max_length=1024)
            arguments = ctranslate2.decoding_of(options, [0], has_source=False) | {"min_new_tokens": NEW}
        else:
            write = formats.FORMATS[name].write
            arguments = steps.write_writer(signature, name, write, folder, quantization)
        decode = DECODERS[name](folder, threads=os.cpu_count(), **arguments)
    rows, most = prompts(batch), decode.most_rows or batch
    inputs = {"token_ids": rows, "padding_mask": np.ones_like(rows)}
    parts = [{key: x[first : first + most] for key, x in inputs.items()} for first in range(0, batch, most)]
    return lambda: [decode(part) for part in parts]


def run_keras_hub(batch, beams, jit_compile):
    import keras
    import keras_hub

    keras.utils.set_random_seed(0)
    backbone = keras_hub.models.GPT2Backbone(VOCABULARY, 12, 12, 768, 3072, max_sequence_length=1024)
    model = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    sampler = keras_hub.samplers.BeamSampler(beams) if beams > 1 else "greedy"
    model.compile(sampler=sampler, jit_compile=jit_compile)
    inputs = {
        "token_ids": np.pad(prompts(batch), ((0, 0), (0, NEW))),
        "padding_mask": np.pad(np.ones((batch, PROMPT), bool), ((0, 0), (0, NEW))),
    }
    return lambda: model.generate(inputs, stop_token_ids=None)


def run_torch(batch, beams):
    import torch

    import_torchvision()
    import transformers

    device = prepare_torch()
    config = transformers.GPT2Config(bos_token_id=None, eos_token_id=None, pad_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval().to(device)
    inputs = torch.from_numpy(prompts(batch)).long().to(device)
    options = {"max_new_tokens": NEW, "do_sample": False, "num_beams": beams}
    mask = torch.ones_like(inputs)
    return lambda: model.generate(inputs, attention_mask=mask, **options)


def run_worker(name, batch, beams):
    """Serve one peer's decoding; counted are the tokens that it returns."""
    runs = {
        "keras_tfm": run_keras_tfm,
        "keras_hub jit": lambda *sizes: run_keras_hub(*sizes, True),
        "keras_hub no jit": lambda *sizes: run_keras_hub(*sizes, False),
        "torch": run_torch,
    }
    if name != "torch":
        prepare_keras()
    if name in EXPORTS:
        kind, _, quantization = name.partition(" ")
        decode = run_export(batch, beams, kind, quantization or None)
    else:
        decode = runs[name](batch, beams)

    def step():
        decode()
        return batch * NEW

    serve(step)


def measure_flatness(early=10, late=900, count=20):
    """Print a token's time in a text of 1,024 tokens, after `early` and after `late` ones."""
    import tensorflow as tf

    from keras_tfm.generation import Decoder

    decoder = Decoder(make_model(), 1024 - PROMPT)
    start = tf.function(decoder.start, autograph=False, jit_compile=True)
    advance = tf.function(decoder.advance, autograph=False, jit_compile=True)
    progress, seconds = start(prompts(1)), {}
    advance(progress, tf.constant(1))
    for position in (early, late):
        progress = advance(progress, tf.constant(position) - progress.written.num_new)
        seconds[position] = min(timed(lambda p=progress: advance(p, tf.constant(count))) for _ in range(5))
        print(f"{seconds[position] / count * 1e3:.1f} ms a token after {position}")
        record("a token in a long text", f"after {position}", seconds[position] / count * 1e3, "ms")
    print(f"late / early: {seconds[late] / seconds[early]:.2f}")


def main():
    parser = argparse.ArgumentParser("benchmarks.generate", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="+", default=PEERS, choices=(*PEERS, *EXPORTS[2:]))
    parser.add_argument("--exports", action="store_true", help="instead of the peers all formats of exports")
    parser.add_argument("--cases", nargs="+", default=["1x1", "8x1", "1x4"], help="batch x beams")
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.flat:
        return measure_flatness()
    if options.exports:
        options.peers = ["keras_tfm", *EXPORTS]
    if options.device == "gpu":
        options.peers = [name for name in options.peers if name not in EXPORTS]
    for case in options.cases:
        batch, beams = map(int, case.split("x"))
        if options.worker:
            return run_worker(options.worker, batch, beams)
        arguments = ["--cases", case]
        title = f"batch {batch}, beams {beams}"
        rates = compare(title, MODULE, options.peers, options.rounds, 1, warmup=1, arguments=arguments)
        if options.exports:
            for name, rate in rates.items():
                print(f"{name:22}{1e3 * batch * NEW / rate:10,.0f} ms for a call of {batch}")
        if options.device == "cpu" and options.peers[0] == "keras_tfm":
            share = rates["keras_tfm"] / batch * WEIGHT_BYTES / memory_bandwidth()
            print(f"keras_tfm reads its weights at {share:.0%} of the memory's bandwidth")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
