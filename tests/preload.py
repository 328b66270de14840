"""What `tests/run.py` imports once for all its processes: TensorFlow, as the command line imports it."""

from keras_tfm.cli.console import quiet_tensorflow

quiet_tensorflow()
