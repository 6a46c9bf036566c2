"""Trainers: thin absl binaries. Flags live here and nowhere else."""

import pathlib

TRAINERS = tuple(sorted(path.stem for path in pathlib.Path(__file__).parent.glob("*_trainer.py")))
