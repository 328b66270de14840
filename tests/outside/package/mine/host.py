import numpy as np


def points(folder, max_length: int):
    def read(text):
        values = np.array([point.split(",") for point in text.split()][:max_length], "float32")
        if values.ndim != 2 or values.shape[1] != 2:
            raise ValueError(f"expected points, x,y with spaces between, got {text!r:.40}")
        return {"points": values, "padding_mask": np.ones(len(values), "float32")}

    return read


def shape(folder, labels: list[str]):
    return lambda outputs, rows, example: {"shape": labels[int(outputs[0]["logits"].argmax())]}
