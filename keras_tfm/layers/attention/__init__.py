"""Attention in its stages: from tokens to heads, to scores, to weights, to averages, and back."""
