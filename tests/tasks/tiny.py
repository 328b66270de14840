"""A size of encoder that tests train in seconds."""

TINY = {
    "num_layers": 1,
    "dim": 32,
    "num_heads": 2,
    "intermediate_dim": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
