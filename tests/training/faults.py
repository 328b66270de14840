"""Trainings that die, or find the disk full, at each change of a file in turn; then each is gone on from.

    LD_PRELOAD=faults.so python -m tests.training.faults FOLDER kill|full CHECKPOINT FIRST STRIDE

Faults begin with the checkpoint of that name. Prints one JSON line: how many there were, and how they ended.
"""

import json
import os
import pathlib
import sys
import traceback

import numpy as np

# One epoch of 6 steps, kept after steps 0, 4 and 6.
OPTIONS = {"data": "endless", "epochs": 1, "every_steps": 4}


def in_child(work):
    """The exit code of `work()` in a fork of this process, negative for a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except OSError as error:
            code = 28 if "No space left on device" in str(error) else 1
        finally:
            if code == 1:
                traceback.print_exc()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder, kind, checkpoint, first, stride):
    # Everything slow is imported once; TensorFlow begins to work in the forks only.
    import keras_tfm.training  # noqa: F401
    from tests.training.resuming import Plan, train

    folder = pathlib.Path(folder)

    def run(name, fault=None, **options):
        def work():
            if fault is not None:
                faults = {"KIND": kind, "ARM": checkpoint, "FOLDER": f"{folder}/{name}/", "AT": str(fault)}
                os.environ.update({f"FAULT_{key}": value for key, value in faults.items()})
            results, *_ = train(folder / name, Plan(**OPTIONS, **options))
            os.environ.pop("FAULT_FOLDER", None)
            np.savez(folder / f"{name}.npz", **results)

        return in_child(work)

    assert run("whole") == 0
    with np.load(folder / "whole.npz", allow_pickle=False) as arrays:
        whole = dict(arrays)
    fault, ends = int(first), []
    while not ends or ends[-1] != 0:
        name = f"fault-{fault}"
        ends.append(run(name, fault=fault))
        assert ends[-1] in (0, -9 if kind == "kill" else 28), (fault, ends[-1])
        assert run(name, resume=True) == 0, fault
        with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
            for key, value in whole.items():
                np.testing.assert_array_equal(arrays[key], value, err_msg=f"fault {fault}: {key}")
        fault += int(stride)
    print(json.dumps({"faults": len(ends) - 1, "ends": sorted(set(ends[:-1]))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
