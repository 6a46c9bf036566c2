"""motley_report: draws Motley's figures from the CSVs of runs and sweeps, into one page.

Takes directories of runs or sweeps, or directories above such. Runs of one data set and metric
stand in one figure; those that differ by nothing but their seed are one line, with its standard
deviation over the seeds. Writes each figure as a vector file and as PNG, the numbers of Tables 4 to
7 as tables.csv, and report.html, which holds all of it and needs no other file.

    motley_report results/school_sweep results/emnist --output_dir=report
"""

import functools
import os
import pathlib
import sys

from absl import flags

from motley_tff import commandline

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "output_dir", "report", "Where the report goes; files of an earlier one are replaced."
)
flags.DEFINE_enum("vector", "svg", ["svg", "pdf"], "Kind of the figures' vector files.")
flags.DEFINE_bool("anyway", False, "Compare runs, too, that are not scored on the same; warns.")


def main(*paths: str) -> None:
    """Draws and says where."""
    from launch.report import building  # pandas and Matplotlib take 0.8 s.

    folder = pathlib.Path(os.path.expanduser(FLAGS.output_dir))
    built = building.build(paths, folder, FLAGS.vector, _show, FLAGS.anyway)
    for warning in built.warnings:
        print(warning, file=sys.stderr)
    figures = sum(path.suffix == ".png" for path in built.files)
    print(f"{built.page}; beside it, as .{FLAGS.vector} and .png, figures: {figures}")
    if built.absent:
        print("left out, no data: " + "; ".join(title for title, _ in built.absent))


def _show(name: str) -> None:
    commandline.raise_if_ended()
    print(f"drawing {name}", file=sys.stderr, flush=True)


run = functools.partial(commandline.run_main, main, ("PATH...",))

if __name__ == "__main__":
    run()
