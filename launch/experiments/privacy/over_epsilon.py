"""What privacy costs: the metric and the share of clients that is truly hurt, over epsilon.

    ./launch/run python launch/experiments/privacy/over_epsilon.py SWEEP/runs RUN --output_dir=DIR

Takes runs of one data set, those of sweeps in their folders `runs`: some with
`--aggregator=differentially_private`, local training, which costs no epsilon, and, if there are,
others without noise. It prints a row for each
method and epsilon, means over seeds, and draws both columns; methods without epsilon are lines
across. Runs without a number, as `run.json` says why, and those of a chosen round are left out.
"""

import os
import pathlib
from collections.abc import Sequence

import pandas as pd
from absl import flags
from matplotlib.figure import Figure

from launch.report import names, page, runs, style
from motley_tff import commandline
from motley_tff.core.errors import UserError
from motley_tff.files import text_tables

FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", None, "Directory of the figure.", required=True)
flags.register_validator("output_dir", lambda name: name != "", "expected a directory's name")

_HEADER = ("method", "epsilon", "runs", "global model", "own models", "% truly hurt")


def main(*paths: str) -> None:
    """Prints the table and draws the figure."""
    folder = pathlib.Path(os.path.expanduser(FLAGS.output_dir))
    reported = runs.find(paths).runs
    spent = table(reported)
    if len({run.dataset for run in reported}) != 1 or spent["epsilon"].isna().all():
        expected = "runs of one data set, some of them with an epsilon"
        raise UserError(", ".join(paths), f"{len(reported)} runs", expected)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output_dir={folder}", error.strerror, "a folder to write") from error
    cells = [[page.number(cell) for cell in row] for row in spent.itertuples(index=False)]
    print(*text_tables.aligned([_HEADER, *cells]), sep="\n")
    with style.settings():
        files, _ = style.save(draw(spent, reported[0].metric), folder, "over_epsilon", "svg")
    print(*files, sep="\n")


def table(reported: Sequence[runs.ReportedRun]) -> pd.DataFrame:
    """Returns a row for each `method` and `epsilon`, of three digits (not-a-number for those that
    spend none): number of `runs`, and their means of `baseline`, `personalized` and `hurt`.
    """
    rows = []
    for run in reported:
        summary = run.reported("summary")
        if summary is None:
            continue
        row = summary.iloc[0]
        if "epsilon" in row and (pd.isna(row["epsilon"]) or run.selects_round):
            continue
        method = names.title(run.algorithm)
        epsilon = float(f"{row['epsilon']:.3g}") if "epsilon" in row else float("nan")
        means = (row["baseline_mean"], row["personalized_mean"], row["pct_truly_hurt"])
        rows.append((method, epsilon, *means))
    columns = ["method", "epsilon", "baseline", "personalized", "hurt"]
    groups = pd.DataFrame(rows, columns=columns).groupby(["method", "epsilon"], dropna=False)
    means, numbers = groups.mean(), groups.size().rename("runs")
    return pd.concat([numbers, means], axis=1).reset_index()


def draw(spent: pd.DataFrame, metric: str) -> Figure:
    """Draws a panel for own models' metric, and one for the share that is truly hurt."""
    figure, axes = style.grid(2, height=2.2)
    looks = style.styles(spent["method"].unique())
    panels = {"personalized": f"own models: {metric.replace('_', ' ')}", "hurt": "% truly hurt"}
    for ax, (column, title) in zip(axes, panels.items(), strict=True):
        for method, rows in spent.groupby("method", sort=False):
            look = looks[str(method)]
            private = rows.dropna(subset="epsilon")
            if not private.empty:
                ax.plot(private["epsilon"], private[column], label=method, **look.options)
            for value in rows.loc[rows["epsilon"].isna(), column]:
                ax.axhline(value, label=f"{method}, no noise", color=look.colour, linestyle=":")
        ax.set_xscale("log")
        ax.set_xticks(ticks := sorted(spent["epsilon"].dropna().unique()), map(page.number, ticks))
        ax.minorticks_off()
        ax.set_xlabel("epsilon")
        ax.set_title(title)
    style.legend_below(figure, axes[0])
    return figure


if __name__ == "__main__":
    commandline.run_main(main, ("PATH...",))
