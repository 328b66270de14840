"""Models that take what they gave the last time, and the loop around them."""

from typing import Any

from keras import ops

from keras_tfm.models.base import ConfiguredModel


class RecyclingModel(ConfiguredModel):
    """A model whose inputs `recycled`, {input: output}, are its outputs of the pass before. Abstract.

    In the first pass they are zeros: all axes of these inputs that are not known have the length N of
    `numbers` (B, N).
    """

    recycled: dict[str, str]

    def start(self, numbers):
        """What the first pass takes for the last one's, for `numbers` (B, N) of residues."""
        size, length = ops.shape(numbers)
        symbols = {name: self.input[name] for name in self.recycled}
        shapes = {
            name: (size, *(length if n is None else n for n in x.shape[1:])) for name, x in symbols.items()
        }
        return {name: ops.zeros(shapes[name], x.dtype) for name, x in symbols.items()}

    def fold(self, inputs: dict[str, Any], num_recycles: int = 3) -> dict[str, Any]:
        """The outputs of the last of `num_recycles` + 1 passes, for all `inputs` but the `recycled`.

        Only the last pass has gradients. Raises ValueError for a negative number.
        """
        if num_recycles < 0:
            raise ValueError(f"`num_recycles` must be at least 0; it is {num_recycles}.")
        inputs = self.prepared({name: ops.convert_to_tensor(x) for name, x in inputs.items()})
        previous = self.start(inputs["numbers"])
        for _ in range(num_recycles):
            outputs = self.one_pass(inputs | previous)
            previous = {name: ops.stop_gradient(outputs[key]) for name, key in self.recycled.items()}
        return self.one_pass(inputs | previous)

    def prepared(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The `inputs` with what is computed before all passes, once; by default nothing."""
        return inputs

    def one_pass(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The outputs of a pass for `prepared` inputs."""
        return self(inputs)
