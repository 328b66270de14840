"""Peers side by side: each in its own process, in turn, several rounds; only ratios count."""
