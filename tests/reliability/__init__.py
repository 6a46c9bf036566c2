"""Runs that are killed, starved and disturbed, and what has to hold of their files."""
