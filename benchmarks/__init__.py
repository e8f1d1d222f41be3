"""Figures of the product against its goals; `python -m benchmarks` runs them all."""
