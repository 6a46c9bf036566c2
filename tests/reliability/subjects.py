"""What users hand in: for each kind of file, how to make valid ones, damage them, and read them.

A reader does with the files what the project's programs do with them, and either takes them or
raises a `UserError`. Everything else is a finding.
"""

import contextlib
import functools
import io
import json
import pathlib
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import datasets
from datasets.models import inception_features
from datasets.prepare import adni, stack_exchange, ted_multi
from launch.metrics import output as metrics_output, tables as metrics_tables
from launch.report import building, runs
from launch.sweeps import grids, plans, results
from motley_tff.experiment import checkpoints, run_directory
from motley_tff.files import model_files
from motley_tff.metrics.generative import client_features, scores
from motley_tff.tables import client_tables, columns
from tests.datasets import (
    adni_archive,
    ted_lines,
    test_adni,
    test_emnist,
    test_landmark,
    test_school,
    test_stackoverflow,
    test_ted_multi,
    test_vehicle,
)
from tests.datasets.prepare import test_stack_exchange
from tests.launch.report import written
from tests.reliability import mutations

Path = pathlib.Path


class Subject(NamedTuple):
    """A kind of input.

    Attributes:
      make: Writes valid files into a folder.
      damage: `(random choices, folder)`: damages some of them.
      read: Reads the folder as a program does.
    """

    make: Callable[[Path], Any]
    damage: Callable[[random.Random, Path], None]
    read: Callable[[Path], Any]


def on_files(pattern: str, *kinds: Callable[[random.Random, bytes], bytes]):
    """Returns what damages one of the files of a pattern, in one of some ways."""

    def damage(rng: random.Random, folder: Path) -> None:
        path = rng.choice(sorted(p for p in folder.glob(pattern) if p.is_file()))
        path.write_bytes(rng.choice(kinds)(rng, path.read_bytes()))

    return damage


def on_databases(rng: random.Random, folder: Path) -> None:
    """Damages one of a folder's databases."""
    mutations.database(rng, rng.choice(sorted(folder.rglob("*.sqlite"))))


BYTES, TABLE, ARCHIVE = mutations.any_bytes, mutations.table, mutations.archive


# --- data sets ------------------------------------------------------------------------------------


def load(name: str, file: str | None = None) -> Callable[[Path], None]:
    """Returns a reader of a data set, and of all its clients."""

    def read(folder: Path) -> None:
        where = {"data_file": str(folder / file)} if file else {"data_dir": str(folder)}
        task = datasets.create_task(datasets.DataOptions(name, **where))
        json.dumps(task.facts, allow_nan=False)  # They go into run.json.
        for clients in (task.train, task.valid, task.test):
            for client_id in clients.ids:
                examples = clients.fetch(client_id)
                _check_finite(examples)
                client_id.encode()

    return read


def _check_finite(parts: Any) -> None:
    for array in tf.nest.flatten(parts):
        values = np.asarray(array)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise AssertionError("a number that is not finite was let in")


def _emnist_sqlite(folder: Path) -> None:
    images = np.random.default_rng(0).random((12, 3, 28, 28), np.float32)
    data = {
        f"f{i}": {"pixels": images[i], "label": np.arange(i, i + 3, dtype=np.int32)}
        for i in range(12)
    }
    test_emnist.write_sqlite(folder / "emnist_all.sqlite", data, "all_train")


def _stackoverflow(folder: Path) -> None:
    clients, split_of = {}, {}
    for i in range(8):
        said = [f"the model {i}", "a table of the model", "it is ."]
        dates = [test_stackoverflow.dated(second) for second in (3, 1, 2)]
        clients[str(i)] = test_stackoverflow.examples(said, dates)
        split_of[str(i)] = "train" if i < 3 else "heldout"
    test_stackoverflow.write(folder / "stackoverflow.sqlite", clients, split_of)
    test_stackoverflow.write_counts(folder / test_stackoverflow.stackoverflow.COUNTS_ARCHIVE)


def _posts(folder: Path) -> None:
    rows = [
        test_stack_exchange.row(
            f"<p>Words of post {i}. And <code>x</code> more &amp; more.</p>", Id=str(i),
            OwnerUserId=str(i % 10), PostTypeId="12"[i % 2], ParentId=str(i - 1),
        )
        for i in range(40)
    ]  # fmt: skip
    test_stack_exchange.dump(folder / "Posts.xml", *rows)


def _read_posts(folder: Path) -> None:
    stack_exchange.prepare(folder / "Posts.xml", folder / "stack_exchange.sqlite")


def _dump(folder: Path) -> None:
    _posts(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        _read_posts(folder)
    (folder / "Posts.xml").unlink()


def _talks(folder: Path) -> None:
    for split in ("train", "dev", "test"):
        rows = [
            {"talk_name": f"{split} {i % 3}", "en": f"the cat {i}, it sat", "es": f"el gato {i}"}
            for i in range(12)
        ]
        ted_lines.write_tsv(folder / f"all_talks_{split}.tsv", rows)


def _read_talks(folder: Path) -> None:
    files = ted_multi.find_files([str(folder / "*.tsv")])
    ted_multi.prepare(files, folder / "out", ted_multi.Thresholds(2, 2))


def on_records(rng: random.Random, folder: Path) -> None:
    """Damages a file of TFRecords, or a record in one, whose checksums are then right again."""
    path = rng.choice(sorted(folder.glob("gld160k/train/*")))
    if rng.random() < 1 / 3:
        path.write_bytes(BYTES(rng, path.read_bytes()))
        return
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    chosen = rng.randrange(len(records))
    records[chosen] = BYTES(rng, records[chosen])
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def _scans(folder: Path) -> None:
    rows = []
    for i in range(6):
        subject, day = f"002_S_{i:04d}", f"2011-06-{i + 1:02d}"
        adni_archive.series(folder / "dicom", subject, 100 + i, day, range(50, 52))
        adni_archive.metadata(folder / "xml", subject, 100 + i, day, ("SIEMENS", "GE")[i % 2])
        rows.append((i, day, 1 + i / 10))
    adni_archive.labels(folder / "suvr.csv", rows)


def _read_scans(folder: Path) -> None:
    sources = adni.Sources(folder / "dicom", folder / "xml", folder / "suvr.csv", 50, 51)
    adni.prepare(sources, folder / "out.npz")


def _damage_scans(rng: random.Random, folder: Path) -> None:
    pattern = rng.choice(("dicom/**/*.dcm", "xml/*.xml", "suvr.csv"))
    on_files(pattern, BYTES, *([TABLE] * (pattern == "suvr.csv")))(rng, folder)


def _damage_pictures(rng: random.Random, folder: Path) -> None:
    if rng.random() < 0.5:
        on_files("labels.csv", TABLE, BYTES)(rng, folder)
    else:
        on_files("*/*.png", BYTES)(rng, folder)


# --- weights and states ---------------------------------------------------------------------------

_SHAPES = ((3, 2), (2,))
_STATE = ((np.float32([[1, 2]]),), {"step": np.int32(3)})


def _weights(folder: Path) -> None:
    weights = [np.ones(shape, np.float32) for shape in _SHAPES]
    model_files.save(folder / "global_model.npz", ["a", "b"], weights)


def _inception(folder: Path) -> None:
    """Writes a file of Keras's layout, far smaller than InceptionV3's."""
    layers = tf.keras.layers
    small = tf.keras.Sequential([layers.Dense(2, input_shape=(3,)), layers.BatchNormalization()])
    small.save_weights(folder / "weights.h5")


def _features(folder: Path) -> None:
    rng = np.random.default_rng(0)
    ids = np.array(["a", "b", "b", "a", "b", "a", "a", "b"])
    np.savez(folder / "clients.npz", features=rng.normal(size=(8, 3)), client_id=ids)
    np.savez(folder / "split.npz", a=rng.normal(size=(4, 3)), b=rng.normal(size=(3, 3)))
    np.savez(folder / "gan.npz", features=rng.normal(size=(6, 3)))
    np.save(folder / "ddpm.npy", rng.normal(size=(6, 3)))


def _read_features(folder: Path) -> None:
    for name in ("clients.npz", "split.npz"):
        clients = client_features.read_clients(folder / name)
        width = clients.features.shape[1]
        sets = {
            file: client_features.read_generated(folder / file, width)
            for file in ("gan.npz", "ddpm.npy")
        }
        table = scores.table(clients, sets, 2)
        metrics_output.write(
            str(folder / "scores.csv"), metrics_output.ShownTable(scores.COLUMNS, table.rows)
        )


# --- tables ---------------------------------------------------------------------------------------


def _tables(folder: Path) -> None:
    test = {f"c{i}": (0.5, 0.25 + i / 10) for i in range(6)}
    curve = {split: {c: {"0": 0.5, "1": 0.6} for c in test} for split in ("valid", "test")}
    keys = {"split": "test"}
    tables = {
        "candidates": written.candidates(curve),
        "rounds": [{"round": i, "train_loss": 1.0 / i, "seconds": 2.0, "num_clients": 3,
                    "train_accuracy": 0.5, "bytes_down": 10, "bytes_up": 10,
                    "share_1": 0.5, "share_2": 0.5} for i in range(1, 11)],
        "summary": [{"split": split, "num_clients": 6, "candidate": "1", "baseline_mean": 0.5,
                            "personalized_mean": 0.6, "bytes_down_total": 30.0 * n,
                            "bytes_up_total": 30.0 * n, "round": n, "pct_clients_hurt": 1.0,
                            "baseline_std": 0.1, "personalized_std": 0.1}
                    for n in (5, 10) for split in ("valid", "test")],
        "sizes": [keys | {"personalization_fraction": f, "num_clients": 6, "candidate": "1",
                          "baseline_mean": 0.5, "baseline_std": 0.1, "personalized_mean": 0.6,
                          "personalized_std": 0.1, "pct_clients_hurt": 10.0}
                  for f in (1.0, 0.5)],
        "acceptance": [keys | {"rule": rule, "num_clients": 6, "num_accepted": 3,
                               "personalized_mean": 0.6, "personalized_std": 0.1,
                               "pct_clients_hurt": 1.0} for rule in ("always", "validated")],
        "clusters": [keys | {"cluster_id": i, "group": g, "num_clients": 2}
                     for i in (1, 2) for g in ("en", "es")],
    }  # fmt: skip
    more = {"cluster_id": dict.fromkeys(test, 1), "group": dict.fromkeys(test, "en")}
    for run_id, algorithm in (("tuned", "fedavg+finetuning"), ("local", "local")):
        flags = {"algorithm": "fedavg", "finetune_every": None, "total_rounds": 10, "lambda": 1.0}
        written.run(folder, run_id, algorithm, test, flags=flags, more=more, tables=tables)
    rows = [{"client_learning_rate": rate, "base_random_seed": seed, "status": "finished"}
            for rate in (0.1, 0.2) for seed in (100, 1100)]  # fmt: skip
    written.sweep(folder / "sweep", rows)
    (folder / "heterogeneity_toy.csv").write_text("client_id,label,share\na,x,0.5\na,y,0.5\n")


def _read_tables(folder: Path) -> None:
    """As motley_metrics does; the report takes seconds and has its own."""
    evaluations = []
    for path in client_tables.find([folder]):
        table = client_tables.choose(client_tables.read(path), "last", None)
        evaluations += client_tables.evaluations(table)
    for table in (metrics_tables.summary(evaluations), metrics_tables.compare(evaluations)[0]):
        _show(folder, table)
    runs.find([str(folder)])


def _show(folder: Path, table: metrics_output.ShownTable) -> None:
    "\n".join(metrics_output.text(table)).encode()
    for suffix in metrics_output.SUFFIXES:
        metrics_output.write(str(folder / f"out{suffix}"), table)


def _read_report(folder: Path) -> None:
    building.build([str(folder)], folder / "report", "svg")


def _leaf(folder: Path) -> None:
    lines = ["client_id,round_number,hierarchy,num_samples,set,accuracy,loss"]
    lines += [f"f{i},{n},,1{i},test,0.{i}5,0.89" for i in range(5) for n in (0, 20)]
    (folder / "metrics_stat.csv").write_text("\n".join([*lines, "f9,0,,,test,,", ""]))


def _foreign(folder: Path) -> None:
    (folder / "mine.csv").write_text(
        "user,G,P,n,language\n" + "".join(f"u{i},0.{i},0.5,{i + 1},en\n" for i in range(6))
    )


_COLUMNS = {"client": "user", "baseline": "G", "personalized": "P", "examples": "n",
            "group": "language"}  # fmt: skip


def _read_csv(folder: Path, name: str, columns: Any = None) -> None:
    table = client_tables.read(folder / name, columns, None, None if columns is None else True)
    evaluations = client_tables.evaluations(client_tables.choose(table, "last", None))
    _show(folder, metrics_tables.summary(evaluations))
    if evaluations[0].is_personalized:
        _show(folder, metrics_tables.quantum(evaluations, None, None)[0])


def _scores(folder: Path) -> None:
    lines = [",".join(columns.names("scores"))]
    lines += [
        f"r,vehicle,fedavg,0,5,test,vehicle:{c},1,{i % 2},{i / 7:.3f},{i / 9:.3f}"
        for c in "abc" for i in range(8)
    ]  # fmt: skip
    (folder / "scores.csv").write_text("\n".join(lines) + "\n")


def _read_scores(folder: Path) -> None:
    path = folder / "scores.csv"
    if not client_tables.is_scores(path):
        return
    table = client_tables.choose(client_tables.read_scores(path), "last", None)
    aucs, clients = metrics_tables.roc_aucs([table])
    _show(folder, aucs)
    if clients is not None:
        _show(folder, clients)


# --- what programs leave for themselves -----------------------------------------------------------

_FLAGS = {"total_rounds": 3, "lambda": 1.0}


def _opened(folder: Path, name: str, flags: Any) -> Any:
    return contextlib.closing(run_directory.RunDirectory(str(folder), name, flags))


def _record(folder: Path) -> None:
    with _opened(folder, "x", _FLAGS) as directory:
        directory.write_record(status="running", data_files={"a": "1:2"}, metric="accuracy")


def _read_record(folder: Path) -> None:
    with _opened(folder, "x", _FLAGS) as directory:
        directory.check_same("data_files", {"a": "1:2"}, "data files")
        directory.write_record(status="finished")


_GRID = """\
algorithm: ditto
dataset: school
trainer: mtl_trainer
fixed:
  algorithm: ditto
  total_rounds: 5
inside:
  acceptance: [always, validated]
grid:
  client_learning_rate: [0.001, 0.003]
  lambda: [0.1, 1]
choose_by: personalized
paper:
  source: Table 7
  best: {client_learning_rate: 0.001}
  personalized_mean: [0.0114, 0.0002]
"""


def _grid(folder: Path) -> None:
    (folder / "grid.yaml").write_text(_GRID, encoding="utf-8")


def _read_grid(folder: Path) -> None:
    grid = grids.parse(folder / "grid.yaml")
    plan = plans.Plan(grid, 2)
    for task in plan.tasks:
        for run in task.runs:
            plan.arguments(run, folder)
    with _opened(folder, "sweep", {}) as directory:
        directory.write_record(plan=plan.identity(), status="running")
        (directory.path / "tasks").mkdir(exist_ok=True)
        results.write(directory.path, plan)


_PLAN = plans.Plan(
    grids.Grid(
        "ditto", "school", "mtl_trainer", {"algorithm": "ditto"}, {},
        {"client_learning_rate": ("0.1", "1")},
    ), 1,
)  # fmt: skip


def _tasks(folder: Path) -> None:
    (folder / "tasks").mkdir()
    rows = [
        results.of_run(
            run,
            [{"split": split, "round": "5", "candidate": "1", "num_clients": "4"}
             | dict.fromkeys(columns.STATISTICS, "0.5") for split in results.SPLITS],
            "accuracy", True,
        )
        for task in _PLAN.tasks for run in task.runs
    ]  # fmt: skip
    for task in _PLAN.tasks:
        content = {"runs": rows, "status": "finished", "seconds": 1.0, "host": "here"}
        results.save(results.path_of(folder, task), content)
        lines = ["run_id,round,split,client_id"]
        lines += [f"{row['run_id']},5,test,a" for row in rows]
        (folder / "tasks" / f"{task.name}.clients.csv").write_text("\n".join(lines) + "\n")


def _read_tasks(folder: Path) -> None:
    for task in _PLAN.tasks:
        results.is_finished(folder, task)
    results.write(folder, _PLAN)


SUBJECTS = {
    "school.mat": Subject(
        lambda folder: test_school.mat(folder / "school.mat"), on_files("*.mat", BYTES),
        load("school"),
    ),
    "vehicle.mat": Subject(
        lambda folder: test_vehicle._mat(folder / "vehicle.mat"), on_files("*.mat", BYTES),
        load("vehicle"),
    ),
    "emnist .npz": Subject(
        lambda folder: test_emnist.npz(folder / "mine.npz"), on_files("*.npz", BYTES, ARCHIVE),
        load("emnist", "mine.npz"),
    ),
    "emnist text ids .npz": Subject(
        lambda folder: test_emnist.npz(
            folder / "mine.npz", writer_id=np.repeat([f"w{i}" for i in range(12)], 5)
        ),
        on_files("*.npz", ARCHIVE), load("emnist", "mine.npz"),
    ),
    "emnist .sqlite": Subject(_emnist_sqlite, on_databases, load("emnist")),
    "stackoverflow .sqlite": Subject(_stackoverflow, on_databases, load("stackoverflow")),
    "stackoverflow word counts": Subject(
        _stackoverflow, on_files("*.tar.bz2", BYTES), load("stackoverflow")
    ),
    "Posts.xml": Subject(_posts, on_files("Posts.xml", BYTES), _read_posts),
    "prepared dump .sqlite": Subject(
        _dump, on_databases, load("stackoverflow", "stack_exchange.sqlite")
    ),
    "TED .tsv": Subject(
        _talks,
        on_files("*.tsv", BYTES, functools.partial(TABLE, separator="\t")),
        _read_talks,
    ),
    "TED .sqlite": Subject(
        lambda folder: test_ted_multi.save(folder / "ted_multi.sqlite"), on_databases,
        load("ted_multi"),
    ),
    "TED vocabulary": Subject(
        lambda folder: test_ted_multi.save(folder / "ted_multi.sqlite"),
        on_files("*.csv", BYTES, TABLE), load("ted_multi"),
    ),
    "landmark TFRecords": Subject(test_landmark.few_clients, on_records, load("landmark")),
    "ADNI archive": Subject(_scans, _damage_scans, _read_scans),
    "ADNI .npz": Subject(
        lambda folder: test_adni._npz(folder / "adni.npz"), on_files("*.npz", BYTES, ARCHIVE),
        load("adni", "adni.npz"),
    ),
    "ADNI .png": Subject(
        test_adni._png_folder, _damage_pictures, load("adni", "labels.csv")
    ),
    "initial weights .npz": Subject(
        _weights, on_files("*.npz", BYTES, ARCHIVE),
        lambda folder: model_files.load(str(folder), _SHAPES),
    ),
    "checkpoint .npz": Subject(
        lambda folder: checkpoints.save(folder, 3, _STATE), on_files("*.npz", BYTES, ARCHIVE),
        lambda folder: checkpoints.load(folder, 3, _STATE),
    ),
    "Inception .h5": Subject(
        _inception, on_files("*.h5", BYTES),
        lambda folder: inception_features._has_classifier(folder / "weights.h5"),
    ),
    "generative .npz, .npy": Subject(
        _features, on_files("*.np?", BYTES), _read_features
    ),
    "generative members": Subject(_features, on_files("*.npz", ARCHIVE), _read_features),
    "clients.csv and run.json": Subject(
        _tables, on_files("*/clients.csv", BYTES, TABLE, TABLE), _read_tables
    ),
    "LEAF's metrics_stat.csv": Subject(
        _leaf, on_files("*.csv", BYTES, TABLE, TABLE),
        lambda folder: _read_csv(folder, "metrics_stat.csv"),
    ),
    "a foreign CSV": Subject(
        _foreign, on_files("*.csv", BYTES, TABLE, TABLE),
        lambda folder: _read_csv(folder, "mine.csv", _COLUMNS),
    ),
    "scores.csv": Subject(_scores, on_files("*.csv", BYTES, TABLE, TABLE), _read_scores),
    "a report's tables": Subject(
        _tables, on_files("*/*.csv", BYTES, TABLE, TABLE), _read_report
    ),
    "a report's other files": Subject(
        _tables, on_files("heterogeneity_*.csv", BYTES, TABLE), _read_report
    ),
    "a report's run.json": Subject(
        _tables, on_files("*/run.json", BYTES, mutations.json_text), _read_report
    ),
    "run.json": Subject(
        _record, on_files("x/run.json", BYTES, mutations.json_text), _read_record
    ),
    "a grid": Subject(
        _grid, on_files("*.yaml", BYTES, mutations.yaml_text), _read_grid
    ),
    "a sweep's tasks": Subject(
        _tasks,
        on_files("tasks/*.json", BYTES, mutations.json_text), _read_tasks,
    ),
    "a sweep's clients": Subject(_tasks, on_files("tasks/*.csv", BYTES, TABLE), _read_tasks),
}  # fmt: skip
