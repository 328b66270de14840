"""Masks: the class of every pixel, instances, and panoptic segments."""
