"""Resuming: all that training needs to go on after a finished epoch, in one file."""

import json
import pathlib

import keras

from keras_tfm.training.safetensors import CheckpointError, read_tensors
from keras_tfm.training.weights import write_tensors


class Checkpoint(keras.callbacks.Callback):
    """Writes `folder`/last.safetensors after each epoch, and `restore`s from it.

    It holds the weights, the optimizer with its averages, every seed generator, the epoch, and the
    state of `best` (a `BestWeights`), whose best weights are kept by its `on_best`. `settings`
    (JSON values) are what must not change between the runs.
    """

    def __init__(self, folder, best, settings):
        super().__init__()
        self.path = pathlib.Path(folder) / "last.safetensors"
        self.best = best
        self.settings = settings

    def on_epoch_end(self, epoch, logs=None):
        state = {
            "epochs": epoch + 1,
            "score": self.best.score,
            "waited": self.best.waited,
            "settings": self.settings,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(self._variables(), self.path, {"state": json.dumps(state)})

    def restore(self, model):
        """Set a compiled `model`, and `best`, from the file: the number of finished epochs.

        Raises CheckpointError where the file is missing or of another model, and ValueError, naming
        them, where `settings` differ.
        """
        self.set_model(model)
        model.optimizer.build(model.trainable_variables)
        tensors, metadata = read_tensors(self.path)
        state = json.loads(metadata["state"])
        changed = sorted(
            key
            for key in self.settings.keys() | state["settings"].keys()
            if self.settings.get(key) != state["settings"].get(key)
        )
        if changed:
            raise ValueError(
                "Resuming needs the settings that training began with; these differ: "
                + ", ".join(
                    f"{key} (now {self.settings.get(key)}, then {state['settings'].get(key)})"
                    for key in changed
                )
            )
        variables = self._variables()
        if {name: tuple(variable.shape) for name, variable in variables.items()} != {
            name: tensor.shape for name, tensor in tensors.items()
        }:
            raise CheckpointError(self.path, None, "the state of this model and optimizer", "another's")
        for name, variable in variables.items():
            variable.assign(tensors[name])
        self.best.score, self.best.waited = state["score"], state["waited"]
        return state["epochs"]

    def _variables(self):
        # Numbered, since the names of optimizers and seed generators differ from process to process.
        metrics = {id(variable) for variable in self.model.metrics_variables}
        model = [variable for variable in self.model.variables if id(variable) not in metrics]
        kinds = (("model", model), ("optimizer", self.model.optimizer.variables))
        return {f"{kind}/{i}": x for kind, variables in kinds for i, x in enumerate(variables)}
