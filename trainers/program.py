"""What every trainer does: reads its flags, runs the experiment, prints the closing table."""

import contextlib
import functools
import os
import pathlib
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import datasets
from motley_tff import commandline, interface
from motley_tff.core.errors import UserError
from motley_tff.experiment import run_directory, summaries
from trainers import config, published_flags, sentences, terminal


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
        run_directory.RunDirectory(
            *place, wanted.deciding_flags, wanted.default_flags, wanted.raisable, trainer
        )
    ) as directory:
        made_with = {"trainer": trainer, "data_dir": wanted.data.data_dir,
                     "data_file": wanted.data.data_file}  # fmt: skip
        directory.record = {**made_with, **directory.record}
        _check_cohort(wanted, directory)
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


def _check_cohort(wanted: config.Config, directory: run_directory.RunDirectory) -> None:
    """Refuses to go on with all silos where ten took part, or the reverse: the flags look alike, as
    ten is the flag's default and not that of silos.
    """
    if datasets.setting(wanted.data.dataset_name, wanted.data.setting) == "cross_silo":
        cohort = {"clients_per_train_round": wanted.run.loop.clients_per_train_round}
        directory.check_same("silos_a_round", cohort, "cohorts")
        directory.record["silos_a_round"] = cohort


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
    """Draws what the run exported, if the pictures are not there, or older."""
    table, picture = directory.table("relations"), directory.figures / "relations.png"
    if table.exists() and not (
        picture.exists() and picture.stat().st_mtime >= table.stat().st_mtime
    ):
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
    record = directory.record
    if (noise := record.get("dp_added_noise")) is not None:
        backend += f"; noise added to a round's sum: {noise:.3g} times the clipping norm"
    constant, own = (record.get(f"{of}constant_prediction", {}) for of in ("", "own_"))
    warnings = [
        *terminal.values_that_do_not_exist(rows),
        *terminal.worse_than_nothing(rows, metric, higher_is_better, constant, own),
    ]
    references = {r["split"]: float(r["reference_mean"]) for r in rows if r.get("reference_mean")}
    named = {"one constant": constant, **own, "own frequent word": references}
    paths = [*first, *others, directory.path / "run.json"]
    if wanted.generator is None:
        more, said = _on_clients(directory, wanted, rows)
        warnings += more
    else:
        said, pictures = _on_pictures(directory)
        paths += pictures
    constants = {name: by_split for name, by_split in named.items() if by_split}
    terminal.print_summary(rows, title, backend, paths, warnings, said, constants)


def _on_clients(
    directory: run_directory.RunDirectory,
    wanted: config.Config,
    rows: Sequence[Mapping[str, str]],
) -> tuple[list[str], list[str]]:
    """Returns warnings and sentences of an evaluation, by its rows of `summary.csv`."""
    record, evaluation = directory.record, wanted.run.loop.evaluation
    clients = summaries.test_clients(directory, rows[0]["round"])
    # Earlier versions did not write down what was tried.
    labels, reason, said = record.get("candidates", []), "", []
    valid = next(row for row in rows if row["split"] == "valid")
    if labels and valid["personalized_mean"]:  # Without a score nothing is the best.
        diverged = (valid.get("diverged_candidates") or "").split(" ")
        said = sentences.last_tried(clients, labels)
        if terminal.nobody_changed(clients):
            rule = evaluation.acceptance[0]
            reason = sentences.unchanged(clients, labels, record["metric"], diverged, rule)
    if wanted.selects_round:
        said += sentences.last_round(summaries.rounds(directory), rows[0]["round"])
    num_clusters = getattr(wanted.run.algorithm, "num_clusters", 1)
    hurt = terminal.hurt_clients(clients, reason)
    return sentences.mode_collapse(clients, num_clusters), [*([hurt] if hurt else []), *said]


def _on_pictures(directory: run_directory.RunDirectory) -> tuple[list[str], list[pathlib.Path]]:
    """Returns a sentence on what scores a generator's pictures, if it made some, and paths."""
    if not any(directory.generated.glob("round_*.npz")):  # --num_generated=0
        return [], [directory.generated]
    sentence = (
        f"to score its pictures, in {directory.generated.name}: "
        f"motley_generative --run={shlex.quote(str(directory.path))} --features=pca:64"
    )
    return [sentence], [directory.generated, directory.figures]
