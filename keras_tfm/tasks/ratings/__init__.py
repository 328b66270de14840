"""What users would like, learnt from what they rated."""
