"""Architectures, one file each; no data code."""
