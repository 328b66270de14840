"""Compares our models with stored numbers of their references: `python -m tests.parity.golden FILE...`.

A file holds `config` (JSON: the reference's `class`, its constructor's `args`, of a supernet the `sample`
that was taken, of functions the `variants` of `args`), `weights/<key>`, inputs by name and what the reference
made of them: outputs by name and `features/<name>`; `sampled/<key>`, the weights of a sample, are not read.
For each file it prints the class and, for each output, the greatest difference as a part of the reference's
greatest value. It ends with 1 where one exceeds 2e-5 or is not made. PyTorch is not needed.
"""

import inspect
import json
import sys

import keras
import numpy as np

from tests.parity.references import reader_of

TOLERANCE = 2e-5


def errors_of(path):
    """(The reference's class, {output: greatest difference / greatest value of the reference's}).

    None instead of the errors where no reader knows the class.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        config = json.loads(str(arrays.pop("config")))
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise SystemExit(f"{path}: expected an .npz file with a JSON `config`: {error}") from None
    read = reader_of(config["class"])
    if read is None:
        return config["class"], None
    parameters = inspect.signature(read).parameters
    if "arrays" in parameters:
        variants = {"variants": config["variants"]} if "variants" in config else {}
        inputs, ours = read(config["args"] | variants, arrays)
        return config["class"], differences({x: y for x, y in arrays.items() if x not in inputs}, ours)
    keys = [name for name in arrays if name.startswith("weights/")]
    weights = {name.removeprefix("weights/"): arrays.pop(name) for name in keys}
    sample = {"sample": config["sample"]} if "sample" in config else {}
    shapes = {"shapes": {name: x.shape for name, x in arrays.items()}}
    model, outputs = read(config["args"] | sample, weights, **(shapes if "shapes" in parameters else {}))
    arrays = {name: x for name, x in arrays.items() if not name.startswith("sampled/")}
    ours = keras.Model(model.input, outputs)({name: arrays.pop(name) for name in model.input})
    return config["class"], differences(arrays, ours)


def differences(arrays, ours):
    """{name: greatest difference / greatest value} of the stored `arrays` and `ours`, infinite for an array
    that is not made or has another shape.
    """
    errors = dict.fromkeys(arrays, np.inf)
    for name in arrays.keys() & ours.keys():
        y, expected = (np.asarray(x, "float64") for x in (ours[name], arrays[name]))
        if y.shape == expected.shape:
            errors[name] = float(np.abs(y - expected).max() / max(np.abs(expected).max(), 1e-30))
    return errors


def main(paths):
    """Print the errors of the files; the process's exit code."""
    is_close = True
    for path in paths:
        family, errors = errors_of(path)
        print(f"{path}: {family}")
        if errors is None:
            print("  has no reader in tests.parity.references")
            continue
        for name, error in errors.items():
            print(f"  {name:<24} {error:.1e}{'' if error <= TOLERANCE else f'  more than {TOLERANCE}'}")
            is_close = is_close and error <= TOLERANCE
    return 0 if is_close else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
