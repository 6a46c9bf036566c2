"""Algorithms, one file each: paper and equation, Params, pure functions."""
