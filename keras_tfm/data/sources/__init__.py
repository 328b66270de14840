"""Files, folders and data sets of TFDS to Python strings and arrays; every error names the file and the
line.
"""
