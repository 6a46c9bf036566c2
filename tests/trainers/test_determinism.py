"""The same bytes whatever the number of cores: one intra-op thread a client."""

import os
import shutil

import pytest

from tests.trainers import programs

FLAGS = (
    "--dataset_name=emnist", "--use_synthetic_data", "--max_examples_per_client=20",
    "--total_rounds=2", "--clients_per_train_round=3", "--final_evaluation_clients=3",
    "--finetune_max_epochs=1", "--experiment_name=x",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("taskset") is None or len(os.sched_getaffinity(0)) < 2,
    reason="needs taskset and two cores",
)
def test_one_core_and_two(tmp_path):
    first = str(min(os.sched_getaffinity(0)))
    single = programs.start(
        "finetuning_trainer", tmp_path / "one", *FLAGS, prefix=["taskset", "-c", first]
    )
    assert single.wait(timeout=300) == 0, single.communicate()
    programs.run("finetuning_trainer", tmp_path / "two", *FLAGS)
    programs.same_tables(tmp_path / "one" / "x", tmp_path / "two" / "x")
