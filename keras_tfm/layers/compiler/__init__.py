"""The same numbers, computed faster. Each file says what was slow."""
