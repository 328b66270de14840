"""Tasks for proteins."""
