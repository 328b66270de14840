"""Makes the stored references: python -m tests.golden.make_golden (needs the [parity] extra).

Tiny torch.nn.Transformer stacks with random weights, post- and pre-norm, relu and gelu, odd sizes:
weights, inputs and outputs, so that `make test` compares with torch without torch.
"""

import json
import pathlib

import numpy as np

from tests.parity.torch_reference import run_stacks

FOLDER = pathlib.Path(__file__).parent
SIZE = {"num_layers": 2, "num_heads": 3, "dim": 15, "hidden_dim": 22}
CONFIGS = {
    "torch_post_norm": {**SIZE, "activation": "relu", "normalize_first": False},
    "torch_pre_norm": {**SIZE, "activation": "gelu", "normalize_first": True},
}


def main():
    for seed, (name, config) in enumerate(CONFIGS.items()):
        state, inputs, (encoded, decoded) = run_stacks(config, np.random.default_rng(seed))
        arrays = {f"state/{key}": array for key, array in state.items()}
        arrays |= {f"inputs/{key}": array for key, array in inputs.items()}
        path = FOLDER / f"{name}.npz"
        np.savez_compressed(path, config=json.dumps(config), encoded=encoded, decoded=decoded, **arrays)
        assert path.stat().st_size <= 200_000, path


if __name__ == "__main__":
    main()
