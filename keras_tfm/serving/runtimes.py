"""The runtimes: {input: array} to a list of outputs."""

from typing import Any

import numpy as np

from .packages import imported


def onnx(folder, threads):
    """model.onnx by onnxruntime, on the CPU."""
    runtime = imported("onnxruntime", "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = runtime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    return lambda inputs: session.run(None, {node.name: inputs[node.name] for node in session.get_inputs()})


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
