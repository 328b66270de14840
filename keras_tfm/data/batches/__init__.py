"""Examples to `tf.data` batches of few shapes, made in the graph and drawn by a seed."""
