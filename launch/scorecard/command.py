r"""motley_scorecard: FedEval's five scores of methods, from run directories, and their radar chart.

    motley_scorecard results/fedsgd results/fedavg results/fedavg_iid results/fedavg_dropout \
        results/fedavg_straggler results/centralized results/local --output_dir=scorecard

Which run is what follows from its flags. One with --partition=iid, --dropout_rate or
--straggler_rate is compared with the one that has the same flags but for that. Costs are compared
with those of --algorithm=fedsgd, effectiveness with --algorithm=centralized and local training. The
more of them are given, the more axes are measured; the others are drawn as not measured. Runs with
--attack are on no axis: what a method's models are worth under it stands beside its scores, in a
column named after the attack and, where it is not the method's own, the aggregator.

Scores go from 0 to 5: motley_tff/metrics/scorecard.py has the formulas. Costs are of all rounds of
a run; with --target, of those it takes until the validation clients' mean is there; with
--patience, of those until the best such mean, after which so many rounds brought no better one;
the models of that round are scored then.
Rounds and seconds of HypCluster's warm start are in no table and not among them; its bytes are.

Seconds are those of this machine, or, where runs have clients trained one by one
(--backend=sequential), with --time=federated those of clients apart: of each round the slowest
client's download, training on one core and upload, over --bandwidth_mbit_down, --bandwidth_mbit_up
and --latency_ms, and the server's work. The evaluations, which FedEval counts as well, are not
among them.
"""

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files, text_tables
from motley_tff.metrics import scorecard

FLAGS = flags.FLAGS
_DASH = "not measured"
# {axis: what it takes}
_NEEDS = {
    "efficiency": "a FedSGD run or --baseline=RUN; with --target, both runs get there",
    "robustness": "the method's runs with --partition=iid, --dropout_rate and --straggler_rate",
    "effectiveness": "a run with --algorithm=centralized and one of local training",
}

flags.DEFINE_string("baseline", None, "Run that costs are compared with, in place of FedSGD's.")
flags.DEFINE_enum(
    "model", "personalized", ["personalized", "global"],
    "Which model of a method is scored: each client's own, or the global one before it.",
)  # fmt: skip
flags.DEFINE_float(
    "target", None, "Count rounds, bytes and seconds until validation clients' mean metric is here."
)
flags.DEFINE_integer(
    "patience", None, "Count until the best round, which so many rounds after it did not better.",
    lower_bound=1,
)  # fmt: skip
flags.DEFINE_enum(
    "time", "wall", ["wall", "federated"],
    "Whose seconds: this machine's, or those of clients behind a network.",
)  # fmt: skip
for _name, _default, _meaning in (
    ("bandwidth_mbit_down", 100.0, "Megabits a second from the server to a client."),
    ("bandwidth_mbit_up", 100.0, "Megabits a second from a client to the server."),
    ("latency_ms", 50.0, "Milliseconds a message takes beside its bytes."),
):
    flags.DEFINE_float(_name, _default, f"--time=federated: {_meaning}", lower_bound=0.0)
for _name in ("bandwidth_mbit_down", "bandwidth_mbit_up"):
    flags.register_validator(_name, lambda value: value > 0, "expected above 0")
flags.register_multi_flags_validator(
    ["target", "patience"],
    lambda values: values["target"] is None or values["patience"] is None,
    "--target and --patience both say where to stop counting; leave one out",
)
flags.DEFINE_string("output_dir", None, "Directory that gets scorecard.csv, radar.svg, radar.png.")


def main(*paths: str) -> None:
    """Scores, prints and draws."""
    baseline = pathlib.Path(os.path.expanduser(FLAGS.baseline)) if FLAGS.baseline else None
    is_global, folder = FLAGS.model == "global", _checked(FLAGS.output_dir)
    network = None
    if FLAGS.time == "federated":
        bandwidths = FLAGS.bandwidth_mbit_down, FLAGS.bandwidth_mbit_up
        network = scorecard.Network(*bandwidths, FLAGS.latency_ms)
    # With pandas, 190 ms.
    from launch.scorecard import rows as scorecard_rows, runs as scorecard_runs
    from motley_tff.report import runs

    all_runs = runs.find(paths).runs
    if not all_runs:
        raise UserError(f"no runs in {', '.join(paths)}; expected directories with a clients.csv")
    column = scorecard_rows.GLOBAL if is_global else scorecard_rows.PERSONALIZED
    counting = scorecard_rows.Counting(FLAGS.target, FLAGS.patience, network)
    rows = scorecard_rows.build(scorecard_runs.assign(all_runs, baseline), column, counting)
    columns = scorecard_rows.columns(rows)
    _print(rows, all_runs[0].metric, columns[len(scorecard_rows.COLUMNS) :])
    if folder is None:
        return
    from motley_tff.report import radar  # With Matplotlib, 500 ms.

    folder.mkdir(exist_ok=True)
    table = folder / "scorecard.csv"
    csv_files.write(table, columns, map(csv_files.formula_safe, rows), optional=columns)
    scores = {row["method"]: [row.get(axis) for axis in scorecard.AXES] for row in rows}
    for path in (table, *radar.save(folder, scorecard.AXES, scores, scorecard.MOST)):
        print(path)


def _checked(output_dir: str | None) -> pathlib.Path | None:
    """Returns --output_dir, checked before anything is computed."""
    if not output_dir:
        return None
    folder = pathlib.Path(os.path.expanduser(output_dir))
    if not folder.absolute().parent.is_dir() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"--output_dir={folder}: expected a directory, or the name of one to make")
    return folder


def _print(rows: Sequence[Mapping[str, Any]], metric: str, attacked: Sequence[str]) -> None:
    """Prints the scores, the metric without and with attacks, and what each axis lacks."""
    lines = [("0 to 5", *scorecard.AXES, metric, *attacked)]
    for row in rows:
        scores = (row.get(axis) for axis in scorecard.AXES)
        cells = (_DASH if score is None else f"{score:.2f}" for score in scores)
        values = (row.get(name) for name in ("value", *attacked))
        numbers = (_DASH if value is None else f"{value:.5g}" for value in values)
        lines.append((row["method"], *cells, *numbers))
    print("\n".join(text_tables.aligned(lines)))
    for axis, needed in _NEEDS.items():
        if missing := [row["method"] for row in rows if row.get(axis) is None]:
            print(f"{axis} of {', '.join(missing)} is not measured: it takes {needed}")


run = functools.partial(commandline.run_main, main, ("RUN...",))

if __name__ == "__main__":
    run()
