"""The runtimes: {input: array} to a list of outputs."""

import contextlib
import ctypes
import functools
import platform
import sys
from typing import Any

import numpy as np

from .packages import imported


def onnx(folder, threads):
    """model.onnx by onnxruntime, on the CPU."""
    runtime = imported("onnxruntime", "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    if _math_library() is not None:
        options.add_session_config_entry("session.set_denormal_as_zero", "1")  # in the session's threads
    with _without_denormals():  # the first session of a process would change this thread for good
        session = runtime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
    names = [node.name for node in session.get_inputs()]

    def run(inputs):
        with _without_denormals():
            return session.run(None, {name: inputs[name] for name in names})

    return run


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


def litert(folder, threads):
    """model.tflite by LiteRT: one of its functions per length."""
    interpreters = imported("ai_edge_litert.interpreter", "ai-edge-litert")
    interpreter = interpreters.Interpreter(str(folder / "model.tflite"), num_threads=threads)
    runners: dict[tuple, Any] = {}
    for name in interpreter.get_signature_list():
        runner = interpreter.get_signature_runner(name)
        shapes = {tuple(map(int, x["shape"])) for x in runner.get_input_details().values()}
        runners |= dict.fromkeys(shapes, runner)

    def run(inputs):
        shape = next(iter(inputs.values())).shape
        if shape not in runners:
            raise ValueError(f"the function takes inputs of {', '.join(map(str, runners))}, got {shape}")
        outputs = runners[shape](**inputs)
        return [outputs[name] for name in sorted(outputs)]

    return run


def openvino(folder, threads):
    """model.xml by OpenVINO, on the CPU."""
    runtime = imported("openvino", "openvino")
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = runtime.Core().compile_model(str(folder / "model.xml"), "CPU", options)
    request, names = compiled.create_infer_request(), [port.any_name for port in compiled.inputs]

    def run(inputs):
        found = request.infer({name: inputs[name] for name in names})
        return [np.array(found[port]) for port in compiled.outputs]

    return run


RUNTIMES: dict[str, Any] = {"onnx": onnx, "litert": litert, "openvino": openvino}
