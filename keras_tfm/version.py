"""The package's version: the one place that says it (setup.py reads it from here without importing)."""

__version__ = "0.1.0"
