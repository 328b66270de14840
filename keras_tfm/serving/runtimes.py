"""The runtimes: {input: array} to a list of outputs, by the function NAME of a folder."""

import contextlib
import ctypes
import functools
import platform
import sys
import threading
from typing import Any

import numpy as np

from .packages import imported


def onnx(folder, threads, name="model"):
    """NAME.onnx by onnxruntime, on the CPU."""
    runtime = imported("onnxruntime", "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    if _math_library() is not None:
        options.add_session_config_entry("session.set_denormal_as_zero", "1")  # in the session's threads
    path = str(folder / f"{name}.onnx")
    # The first session of a process would change this thread's denormal numbers for good.
    with _reading(path), _without_denormals():
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    read = [node.name for node in session.get_inputs()]

    def run(inputs):
        given = {name: inputs[name] for name in read}
        with _without_denormals(), _computing(path):
            return session.run(None, given)

    return run


@contextlib.contextmanager
def _reading(path):
    """A scope in which whatever a runtime raises for the file at `path` is a ValueError of one line."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path}: expected a whole file that the runtime can read: {reason}") from None


@contextlib.contextmanager
def _computing(path):
    """A scope in which whatever a runtime raises for the numbers that it gets is a ValueError of one line."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path}: its function does not take these inputs: {reason}") from None


@contextlib.contextmanager
def _without_denormals():
    """A scope in which this thread takes numbers nearer to 0 than 1.2e-38 for 0, on Linux on x86-64 alone.

    The attention weights of masked keys are such numbers, with which processors compute far more slowly.
    """
    library = _math_library()
    if library is None:
        yield
        return
    before = ctypes.create_string_buffer(32)  # glibc's fenv_t; its last 4 bytes are the register MXCSR
    library.fegetenv(before)
    register = int.from_bytes(before.raw[28:], "little") | 0x8040  # "flush to zero", "denormals are zeros"
    library.fesetenv(before.raw[:28] + register.to_bytes(4, "little"))
    try:
        yield
    finally:
        library.fesetenv(before)


@functools.cache
def _math_library():
    """glibc's functions of the floating-point environment, or None where its layout is another."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    with contextlib.suppress(OSError):
        return ctypes.CDLL("libm.so.6")
    return None


def litert(folder, threads, name="model"):
    """NAME.tflite by LiteRT: one of its functions per length."""
    interpreters = imported("ai_edge_litert.interpreter", "ai-edge-litert")
    path = str(folder / f"{name}.tflite")
    with _reading(path):
        interpreter = interpreters.Interpreter(path, num_threads=threads)
    runners: dict[tuple, Any] = {}
    for signature in interpreter.get_signature_list():
        runner = interpreter.get_signature_runner(signature)
        details = runner.get_input_details()
        runners[tuple((key, tuple(map(int, details[key]["shape"]))) for key in sorted(details))] = runner
    read, lock = sorted(details), threading.Lock()  # an interpreter computes for one thread at a time

    def run(inputs):
        shapes = tuple((key, inputs[key].shape) for key in read)
        if shapes not in runners:
            raise ValueError(f"the function takes inputs of {_differing(runners, shapes)}")
        with lock, _computing(path):
            outputs = runners[shapes](**{key: inputs[key] for key in read})
        return [outputs[key] for key in sorted(outputs)]

    return run


def _differing(known, shapes):
    """The shapes of the first input of which none is known, and what was given instead."""
    for place, (_, shape) in enumerate(shapes):
        sizes = [case[place][1] for case in known]
        if shape not in sizes:
            return f"{', '.join(map(str, sizes))}, got {shape}"
    return f"other sizes together, got {', '.join(str(shape) for _, shape in shapes)}"


def openvino(folder, threads, name="model"):
    """NAME.xml by OpenVINO, on the CPU."""
    runtime = imported("openvino", "openvino")
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    path = str(folder / f"{name}.xml")
    with _reading(path):
        compiled = runtime.Core().compile_model(path, "CPU", options)
    request, lock = compiled.create_infer_request(), threading.Lock()  # one request, one thread at a time
    read = [port.any_name for port in compiled.inputs]
    written = sorted(compiled.outputs, key=lambda port: port.any_name)  # their own order is any

    def run(inputs):
        given = {name: inputs[name] for name in read}
        with lock, _computing(path):
            found = request.infer(given, share_inputs=True)
            return [np.array(found[port]) for port in written]

    return run


RUNTIMES: dict[str, Any] = {"onnx": onnx, "litert": litert, "openvino": openvino}
