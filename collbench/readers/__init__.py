"""Readers: they make what people look at out of results.csv, and know nothing else."""
