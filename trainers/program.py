"""What every trainer does: reads its flags, runs the experiment, prints the closing table."""

import contextlib
import functools
import os
import shlex
import tempfile
from typing import Any

import datasets
from motley_tff import commandline, interface
from motley_tff.core.errors import UserError
from motley_tff.experiment import run_directory, summaries
from trainers import config, published_flags, terminal


def run(main: Any) -> None:
    """Runs a trainer's `main` as a console command."""
    commandline.run_main(main, goes_on=True, advice=published_flags.advice)


def train(trainer: str) -> None:
    """Runs the experiment that a trainer's flags describe, or finds it there.

    UserError if flags or data are wrong, or the directory is in use, of other flags or read-only.
    """
    wanted = config.read(trainer)
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise UserError(
            f"TensorFlow needs a temporary directory: {error.strerror}; make room there, or set "
            "TMPDIR to one that can be written"
        ) from error
    place = (wanted.root_output_dir, wanted.experiment_name)
    with contextlib.closing(
        run_directory.RunDirectory(*place, wanted.deciding_flags, wanted.default_flags)
    ) as directory:
        made_with = {"trainer": trainer, "data_dir": wanted.data.data_dir,
                     "data_file": wanted.data.data_file}  # fmt: skip
        directory.record = {**made_with, **directory.record}
        if directory.is_finished:
            _check_data_file(wanted, directory)
        else:
            create_task = functools.partial(_create_task, wanted, directory)
            source = "synthetic data" if wanted.data.use_synthetic_data else "data"
            progress = terminal.TerminalProgress(
                f"{trainer}: {wanted.data.dataset_name}, {source}; results go to {directory.path}"
            )
            interface.run_config(create_task, wanted.run, directory, progress, terminal.warn)
        _draw(directory)
        _print_closing_table(directory, wanted)


def _create_task(wanted: config.Config, directory: run_directory.RunDirectory) -> Any:
    """Returns the data set's task, or that of making its pictures, which are then written."""
    task = datasets.create_task(wanted.data)
    if wanted.generator is None:
        return task
    from datasets import generators  # With TensorFlow.

    made = generators.as_generative(task, wanted.generator)
    generators.write_real(task, directory.generated / run_directory.CLIENTS_PICTURES)
    return made


def _check_data_file(wanted: config.Config, directory: run_directory.RunDirectory) -> None:
    """Refuses to show results of one file for another, of data or of the user's model."""
    files = datasets.model_files(wanted.data)
    if wanted.data.data_file and not wanted.data.use_synthetic_data:
        files.append(os.path.expanduser(wanted.data.data_file))
    if files:
        known = directory.record.get("data_files") or {}
        digests = {os.path.basename(path): run_directory.digest(path) for path in files}
        # A folder of pictures is not read again for what is shown.
        directory.check_same("data_files", {**known, **digests}, "data files")


def _draw(directory: run_directory.RunDirectory) -> None:
    """Draws what the run exported, if the pictures are not there."""
    table, picture = directory.table("relations"), directory.figures / "relations.png"
    if table.exists() and not picture.exists():
        from motley_tff.report import relations  # Matplotlib takes 0.5 s.

        picture.parent.mkdir(exist_ok=True)
        relations.save(picture, table)


def _print_closing_table(directory: run_directory.RunDirectory, wanted: config.Config) -> None:
    first = [directory.table(name) for name in ("summary", "clients", "candidates", "rounds")]
    others = sorted(set(directory.path.glob("*.csv")) - set(first))  # Of flags: sizes.csv, say.
    metric, higher_is_better = (directory.record[k] for k in ("metric", "higher_is_better"))
    title, rows = metric, summaries.last(directory)
    if wanted.selects_round:
        rows = summaries.selected(directory, higher_is_better)
        title += f" after round {rows[0]['round']} (the best on validation clients)"
    backend = f"{directory.record['backend']} ({directory.record['backend_reason']})"
    constant = directory.record.get("constant_prediction", {})
    warnings = [
        *terminal.values_that_do_not_exist(rows),
        *terminal.worse_than_nothing(rows, metric, higher_is_better, constant),
    ]
    paths = [*first, *others, directory.path / "run.json"]
    if wanted.generator is None:
        sentence = terminal.hurt_clients(summaries.test_clients(directory, rows[0]["round"]))
    elif any(directory.generated.glob("round_*.npz")):
        sentence = (
            f"to score its pictures, in {directory.generated.name}: "
            f"motley_generative --run={shlex.quote(str(directory.path))} --features=pca:64"
        )
        paths += [directory.generated, directory.figures]
    else:  # --num_generated=0
        sentence = ""
        paths.append(directory.generated)
    terminal.print_summary(rows, title, backend, paths, warnings, sentence)
