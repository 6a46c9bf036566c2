"""What every trainer does: reads its flags, runs the experiment, prints the closing table."""

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable
from typing import Any

import datasets
from motley_tff import commandline, interface
from motley_tff.commandline import progress
from motley_tff.core.errors import UserError
from motley_tff.experiment import run_directory
from trainers import algorithm_flags, closing_table, config, published_flags


def command(module: str, trainer: str) -> Callable[[], None]:
    """Declares a trainer's flags, and returns what runs it as a console command.

    Args:
      module: The trainer's `__name__`; its docstring is the command's help.
      trainer: Its name.
    """
    algorithm_flags.define(trainer)
    main: Any = functools.partial(train, trainer)
    main.__module__ = module
    advice = published_flags.advice
    return functools.partial(commandline.run_main, main, can_resume=True, advice=advice)


def train(trainer: str) -> None:
    """Runs the experiment that a trainer's flags describe, or finds it there.

    UserError if flags or data are wrong, or the directory is in use, of other flags or read-only.
    """
    settings = config.read(trainer)
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        where = f"TensorFlow needs a temporary directory: {error.strerror}"
        advice = "make room there, or set TMPDIR to one that can be written"
        raise UserError(where, advice=advice) from error
    place = (settings.root_output_dir, settings.experiment_name)
    directory = run_directory.RunDirectory(
        *place, settings.deciding_flags, settings.default_flags, settings.raisable, trainer
    )
    with contextlib.closing(directory):
        data = settings.data
        made_with = {"data_dir": data.data_dir, "data_file": data.data_file}
        directory.record = {"trainer": trainer, **made_with, **directory.record}
        _check_cohort(settings, directory)
        if directory.is_finished:
            _check_data_file(settings, directory)
        else:
            create_task = functools.partial(_create_task, settings, directory)
            source = "synthetic data" if data.use_synthetic_data else "data"
            reporter = progress.TerminalProgress(
                f"{trainer}: {data.dataset_name}, {source}; results go to {directory.path}"
            )
            interface.run_config(create_task, settings.run, directory, reporter, progress.warn)
        if directory.table("relations").exists():
            from motley_tff.tables import relations  # Matplotlib takes 0.5 s.

            relations.update(directory.figures / "relations.png", directory.table("relations"))
        closing_table.show(directory, settings)


def _create_task(settings: config.Config, directory: run_directory.RunDirectory) -> Any:
    """Returns the data set's task, or that of making its pictures, which are then written."""
    task = datasets.create_task(settings.data)
    if settings.generator is None:
        return task
    from datasets.kinds import generators  # With TensorFlow.

    pictures_task = generators.as_generative(task, settings.generator)
    generators.write_real(task, directory.generated / run_directory.CLIENTS_PICTURES)
    return pictures_task


def _check_cohort(settings: config.Config, directory: run_directory.RunDirectory) -> None:
    """Refuses to go on with all silos where ten took part, or the reverse: the flags look alike, as
    ten is the flag's default and not that of silos.
    """
    if datasets.setting(settings.data.dataset_name, settings.data.setting) == "cross_silo":
        cohort = {"clients_per_train_round": settings.run.loop.clients_per_train_round}
        directory.check_same("silos_a_round", cohort, "cohorts")
        directory.record["silos_a_round"] = cohort


def _check_data_file(settings: config.Config, directory: run_directory.RunDirectory) -> None:
    """Refuses to show results of one file for another, of data or of the user's model."""
    files = datasets.model_files(settings.data)
    if settings.data.data_file and not settings.data.use_synthetic_data:
        files.append(os.path.expanduser(settings.data.data_file))
    if files:
        known = directory.record.get("data_files") or {}
        digests = {os.path.basename(path): run_directory.digest(path) for path in files}
        # A folder of pictures is not read again for what is shown.
        directory.check_same("data_files", {**known, **digests}, "data files")
