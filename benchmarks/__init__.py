"""Measurements of univocal beside other caches: `python -m benchmarks --help`."""
