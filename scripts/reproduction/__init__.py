"""What `scripts/reproduce.py` is made of."""
