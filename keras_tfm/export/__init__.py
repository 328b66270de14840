"""Export: a whole task, from raw input to answer, as one file or folder for serving."""
