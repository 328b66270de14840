"""Files, folders and TFDS sets to Python strings and arrays; every error names the file and the line."""
