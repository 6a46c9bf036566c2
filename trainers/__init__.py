"""Trainers: thin absl binaries. Flags live here and nowhere else."""
