"""Strings to token ids and back, in the graph, and their files."""
