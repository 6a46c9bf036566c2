"""The table and figure of what privacy costs, from runs with numbers that are chosen here."""

import pytest

from tests.errors import refused
from tests.launch import commands
from tests.launch.report import written


@pytest.fixture(scope="module")
def command():
    with commands.opened("launch.experiments.privacy.over_epsilon", "PATH...") as run:
        yield run


def _run(root, name, algorithm, values, seed=0, **more):
    means = dict(zip(("baseline_mean", "personalized_mean", "pct_truly_hurt"), values, strict=True))
    summary = [{"split": split, **means, **more} for split in ("valid", "test")]
    clients = {"a": (0.5, 0.6), "b": (0.5, 0.5)}
    written.run(root, name, algorithm, clients, seed=seed, tables={"summary": summary}, flags={})


def test_a_row_for_each_epsilon_and_for_who_spends_none(command, tmp_path):
    """Seeds' means; a run that has no number is left out."""
    root = tmp_path / "runs"
    for seed, hurt in enumerate((10, 20)):
        _run(root, f"x{seed}", "fedavg+finetuning", (0.5, 0.6, hurt), seed, epsilon=7.9996)
    _run(root, "much", "fedavg+finetuning", (0.7, 0.8, 5), epsilon=64)
    _run(root, "none", "fedavg+finetuning", (0.1, 0.1, 1), seed=3, epsilon="")
    _run(root, "alone", "local", (0.2, 0.3, 0))
    _, printed = command(str(root), f"--output_dir={tmp_path / 'out'}")
    lines = [line.split() for line in printed.splitlines()]
    assert ["FedAvg", "+", "FT", "8", "2", "0.5", "0.6", "15"] in lines
    assert ["FedAvg", "+", "FT", "64", "1", "0.7", "0.8", "5"] in lines
    assert ["Local", "training", "1", "0.2", "0.3", "0"] in lines
    assert len(lines) == 1 + 3 + 2  # A header, and two files.
    assert (tmp_path / "out" / "over_epsilon.svg").exists()


def test_runs_without_an_epsilon_are_refused(command, tmp_path):
    _run(tmp_path / "runs", "alone", "local", (0.2, 0.3, 0))
    with refused("runs", "1 runs", "some of them with an epsilon"):
        command(str(tmp_path / "runs"), f"--output_dir={tmp_path / 'out'}")
