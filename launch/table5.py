"""motley_table5: searches the paper's silo grids and prints its Table 5 beside what came out.

For every algorithm all settings of Appendix F.3 are trained under every seed; the setting with the
best mean validation metric (over silos, then seeds) is reported on test data: mean over silos, and
standard deviation over silos, each averaged over the seeds. FedAvg's pair of rates is chosen by
FedAvg's own validation metric, and fine-tuning searches its rate and epoch for every silo, and the
round to start from, on top of that pair; its baseline is no candidate.

    motley_table5 --dataset_name=school --data_dir=DATA --csv=table5.csv
"""

import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from absl import flags

from launch import commandline
from motley_tff.core.errors import UserError

FLAGS = flags.FLAGS

_SCHOOL_RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
_VEHICLE_RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
_SERVER_RATES = (0.1, 0.3, 1.0, 3.0, 10.0)
_LAMBDAS = (0.0001, 0.001, 0.01, 0.1, 0.3, 1.0, 3.0)
_FINETUNE_EPOCHS, _FINETUNE_EVERY = 100, 50
# {dataset: (rates of clients, personal models and fine-tuning, batch size)}
_TASKS = {"school": (_SCHOOL_RATES, 32), "vehicle": (_VEHICLE_RATES, 64)}
# The paper's Table 5: (mean, std over silos, % hurt).
_PAPER = {
    "school": {
        "local": (0.0121, 0.0059, None),
        "fedavg": (0.0130, 0.0068, None),
        "finetuning": (0.0116, 0.0056, 33.0),
        "ditto": (0.0114, 0.0053, None),
        "mocha": (0.0121, 0.0059, None),
    },
    "vehicle": {
        "local": (0.9367, 0.0248, None),
        "fedavg": (0.8859, 0.0833, None),
        "finetuning": (0.9385, 0.0253, 4.4),
        "ditto": (0.9377, 0.0218, None),
        "mocha": (0.9371, 0.0244, None),
    },
}
_COLUMNS = (
    "algorithm", "setting", "mean", "paper_mean", "std_over_silos", "paper_std_over_silos",
    "mean_std_over_seeds", "pct_clients_hurt", "paper_pct_clients_hurt", "num_runs", "seconds",
)  # fmt: skip

flags.DEFINE_enum("dataset_name", "school", list(_TASKS), "Which column of the table.")
flags.DEFINE_string("data_dir", None, "Directory that holds the data sets.")
flags.DEFINE_bool("use_synthetic_data", False, "Make data up instead; compares with nothing.")
flags.DEFINE_list("algorithms", list(_PAPER["school"]), "Which rows, separated by commas.")
flags.DEFINE_integer("seeds", 5, "Seeds 100, 1100, 2100, ...", lower_bound=1, upper_bound=100)
flags.DEFINE_integer("total_rounds", 500, "Rounds.", lower_bound=1)
flags.DEFINE_string("csv", None, "File that gets the table, too.")


@flags.validator("algorithms", f"expected some of {', '.join(_PAPER['school'])}")
def _are_rows(names: list[str]) -> bool:
    return bool(names) and set(names) <= set(_PAPER["school"])


class Row(NamedTuple):
    """One algorithm's line: its chosen setting and what silos have with it."""

    algorithm: str
    setting: Mapping[str, float]
    mean: float
    std_over_silos: float
    mean_std_over_seeds: float
    pct_clients_hurt: float | None
    num_runs: int
    seconds: float


def main() -> None:
    """Searches and prints."""
    if FLAGS.csv and not pathlib.Path(FLAGS.csv).expanduser().absolute().parent.is_dir():
        raise UserError(f"--csv={FLAGS.csv}: its directory is not there; make it first")
    from launch import table5_search  # Imports TensorFlow: after the flags are known to be right.

    rates, batch_size = _TASKS[FLAGS.dataset_name]
    search = table5_search.Search(
        _tasks(), batch_size, FLAGS.total_rounds, _FINETUNE_EPOCHS, _FINETUNE_EVERY, _show
    )
    start = time.monotonic()
    rows: list[Row] = []
    for name in dict.fromkeys(FLAGS.algorithms):
        begun = time.monotonic()
        found = search.best(name, rates, list(_points(name, rates)))
        rows.append(Row(*found, seconds=time.monotonic() - begun))
    _print(rows, time.monotonic() - start)
    if FLAGS.csv:
        _write(rows)


def _tasks() -> dict[int, Any]:
    import datasets

    seeds = [100 + 1000 * r for r in range(FLAGS.seeds)]
    return {
        seed: datasets.create_task(
            datasets.DataOptions(
                dataset_name=FLAGS.dataset_name,
                data_dir=FLAGS.data_dir,
                use_synthetic_data=FLAGS.use_synthetic_data,
                base_random_seed=seed,
            )
        )
        for seed in seeds
    }


def _points(name: str, rates: tuple[float, ...]) -> Iterator[dict[str, float]]:
    """Yields the settings of Appendix F.3."""
    if name == "local":
        yield from ({"personal": rate} for rate in rates)
    elif name in ("fedavg", "finetuning"):
        yield from ({"client": c, "server": s} for c in rates for s in _SERVER_RATES)
    elif name == "mocha":
        yield from (
            {"personal": rate, "lambda": strength, "mocha_outer": outer}
            for rate in rates
            for strength in _LAMBDAS
            for outer in (1, 2, 5)
        )
    else:
        yield from (
            {"client": c, "server": s, "lambda": strength, "personal": p}
            for c in rates
            for s in _SERVER_RATES
            for strength in _LAMBDAS
            for p in rates
        )


def _show(text: str) -> None:
    commandline.raise_if_ended()
    print(text, file=sys.stderr, flush=True)


def _cells(row: Row) -> dict[str, str]:
    paper: tuple[float | None, ...] = (None, None, None)
    if not FLAGS.use_synthetic_data:
        paper = _PAPER[FLAGS.dataset_name][row.algorithm]

    def number(value: float | None, digits: str = ".5f") -> str:
        return "" if value is None else format(value, digits)

    values = (
        row.algorithm,
        " ".join(f"{name}={value:g}" for name, value in row.setting.items()),
        number(row.mean), number(paper[0], "g"),
        number(row.std_over_silos), number(paper[1], "g"),
        number(row.mean_std_over_seeds),
        number(row.pct_clients_hurt, ".1f"), number(paper[2], "g"),
        str(row.num_runs), number(row.seconds, ".0f"),
    )  # fmt: skip
    return dict(zip(_COLUMNS, values, strict=True))


def _print(rows: list[Row], seconds: float) -> None:
    table = [dict(zip(_COLUMNS, _COLUMNS, strict=True)), *(_cells(row) for row in rows)]
    widths = {name: max(len(line[name]) for line in table) for name in _COLUMNS}
    for line in table:
        print("  ".join(line[name].ljust(widths[name]) for name in _COLUMNS).rstrip())
    print(
        f"\n{FLAGS.seeds} seeds, {FLAGS.total_rounds} rounds; the whole search took {seconds:.0f} s"
    )


def _write(rows: list[Row]) -> None:
    from motley_tff.tables import csv_files

    csv_files.write(pathlib.Path(FLAGS.csv).expanduser(), _COLUMNS, [_cells(row) for row in rows])


def run() -> None:
    """Entry point of the console command."""
    commandline.run_main(main)


if __name__ == "__main__":
    run()
