"""The suites of `scripts/benchmark.py`, a file each, and what they share."""
