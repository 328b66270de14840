"""`python -m keras_tfm` is the command `keras-tfm`."""

from keras_tfm.cli import main

main()
