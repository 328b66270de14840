"""Attention, in stages: project tokens to heads, score, weigh, average the values, merge the heads."""
