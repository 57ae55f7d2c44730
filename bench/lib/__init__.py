"""Modules that the parts of the benchmark share."""
