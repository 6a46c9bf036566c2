"""Writes `trainers/flags.csv`: every flag of every trainer, from the options that they are made of.

./launch/run python -m launch.flag_table
"""

import csv
import dataclasses
import io
import pathlib
from typing import Any

from datasets.options import DataOptions
from motley_tff import algorithms
from motley_tff.core import options
from trainers import TRAINERS, algorithm_flags

PATH = pathlib.Path(algorithm_flags.__file__).with_name("flags.csv")
_COLUMNS = ("flag", "python", "default", "expected", "only_with", "trainers", "meaning")


def text() -> str:
    """Returns the table: a row for each flag of each dataclass, in the order of their names."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for trainer in TRAINERS:
        others, name = algorithms.plugged(), trainer.removesuffix("_trainer")
        named = {**algorithm_flags.kinds_of(trainer), **algorithms.personalizations_of(trainer)}
        kinds: list[Any] = [DataOptions, *algorithm_flags.beside(trainer)]
        kinds += [kind for name, kind in named.items() if name not in others]
        for kind, option in ((k, o) for k in kinds for o in options.options(k, trainer)):
            key = (option.name.flag, f"{_owner(kind, option).__name__}.{option.name.field}")
            default = option.default if option.default is not None else ""
            if isinstance(default, tuple):
                default = ",".join(map(str, default))
            row = rows.setdefault(key, {
                "flag": key[0], "python": key[1], "default": str(default),
                "expected": option.expected, "only_with": " ".join(option.owners), "trainers": "",
                "meaning": option.meaning,
            })  # fmt: skip
            if name not in row["trainers"].split():
                row["trainers"] = f"{row['trainers']} {name}".strip()
    file = io.StringIO()
    writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[key] for key in sorted(rows))
    return file.getvalue()


def _owner(kind: Any, option: options.Option) -> Any:
    """Returns the first of a dataclass's bases that has the option as it has it."""
    bases = [base for base in reversed(kind.__mro__) if dataclasses.is_dataclass(base)]
    same = (option.name.field, option.default)
    return next(b for b in bases if same in [(o.name.field, o.default) for o in options.options(b)])


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
