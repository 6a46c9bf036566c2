"""Commands of the silo code in launch/grids/README.md parse and run; advice names our flags."""

import re

import pytest

from tests.trainers import programs, test_optimizer_flags
from trainers import published_flags

TEXT = (programs.ROOT / "launch" / "grids" / "README.md").read_text(encoding="utf-8")
COMMON = [
    "--dataset_name=school", "--train_batch_size=32", "--total_rounds=500",
    "--base_random_seed=100", "--experiment_name=x",
]  # fmt: skip
# (their flags, our trainer, our flags) of each row.
ROWS = [
    (theirs.split(), *ours.split(maxsplit=1))
    for theirs, ours in re.findall(r"^\| `(--trainer=[^`]*)` \| `([^`]*)` \|$", TEXT, re.MULTILINE)
]
# {theirs: ours} of what has a value in both.
SAME_VALUE = {
    name: match[1]
    for name, words in published_flags.SILO.items()
    if (match := re.match(r"here it is --(\w+)", words))
} | {"num_clusters": "num_clusters", "lambda": "lambda", "mocha_outer": "mocha_outer"}


def test_advice_names_flags_that_there_are():
    flags = programs.all_flags(
        "trainers.finetuning_trainer", "trainers.hypcluster_trainer", "trainers.knn_per_trainer",
        "trainers.mtl_trainer", "launch.sweeps.command",
    )  # fmt: skip
    for words in published_flags.SILO.values():
        named = set(re.findall(r"--(\w+)", words))
        named |= set(re.findall(r"a grid that has (\w+)", words))
        assert named <= flags, words
    # What a trainer has itself is never asked for.
    assert not set(published_flags.SILO) & flags - {"lambda"}


def test_each_algorithm_has_a_row():
    assert [theirs[0].partition("=")[2] for theirs, *_ in ROWS] == [
        "local", "fedavg", "finetune", "ifca", "ifca", "mocha", "ditto", "mrmtl", "knnper",
    ]  # fmt: skip


@pytest.mark.parametrize("trainer", sorted({row[1] for row in ROWS}))
def test_commands_parse_and_hold_their_values(trainer):
    rows = [row for row in ROWS if row[1] == trainer]
    lines = [[*COMMON, *ours.split()] for _, _, ours in rows]
    for (theirs, _, ours), advice in zip(
        rows, test_optimizer_flags.parsed(*lines, trainer=trainer), strict=True
    ):
        assert isinstance(advice, dict), (ours, advice)
        for name, value in re.findall(r"--(\w+)=([\d.]+)", " ".join(theirs)):
            mine = SAME_VALUE[name]
            if name == "client_lr" and f"--{mine}=" not in ours:  # Local training has no other.
                mine = "personal_learning_rate"
            mine = advice[mine]
            assert float(mine[0] if isinstance(mine, list) else mine) == float(value), (name, ours)


@pytest.mark.study
@pytest.mark.parametrize("number", range(len(ROWS)))
def test_each_runs(tmp_path, number):
    _, trainer, ours = ROWS[number]
    few = re.sub(r"(_rounds|_epochs|_every)=[1-9]\d*", r"\1=2", ours)
    common = [flag for flag in COMMON if "total_rounds" not in flag]
    stdout, _ = programs.run(
        trainer, tmp_path, *common, "--total_rounds=2", *few.split(), "--use_synthetic_data"
    )
    assert programs.table(tmp_path, "x", "summary")["personalized_mean"].notna().all()
    assert "test" in stdout
