"""What `scripts/ablate.py` is made of."""
