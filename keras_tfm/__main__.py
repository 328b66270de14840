"""`python -m keras_tfm` runs the command `keras-tfm`."""

from keras_tfm.cli import main

main()
