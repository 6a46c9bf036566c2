"""--aggregator=differentially_private: what a trainer refuses, and what it says of the noise."""

import contextlib
import json
from unittest import mock

import pytest

from motley_tff.backends import sequential
from motley_tff.experiment import runner
from tests.contracts import in_process
from tests.errors import refused

FLAGS = ("--aggregator=differentially_private", "--total_rounds=1", "--finetune_max_epochs=0")


@pytest.fixture(scope="module")
def train():
    with in_process.opened("finetuning_trainer") as run:
        yield run


def test_the_noise_that_is_added_is_on_record_and_said(train, tmp_path, capsys):
    """Of three silos: (1 / 0.2^2 - 1 / 0.3^2)^(-1/2)."""
    without_tff = mock.patch.object(
        runner, "_open_tff", lambda *_: contextlib.nullcontext(sequential.SequentialBackend(1))
    )
    with without_tff:
        folder = train(tmp_path, "x", *FLAGS, "--dp_noise_multiplier=0.2")
    noise = json.loads((folder / "run.json").read_text())["dp_added_noise"]
    assert noise == pytest.approx(0.268328)
    assert (
        "; noise added to a round's sum: 0.268 times the clipping norm" in capsys.readouterr().out
    )


def test_a_default_cohort_is_refused_before_data_are_read(train, tmp_path):
    no_data = mock.patch.object(in_process, "load", side_effect=AssertionError)
    with no_data, refused("dp_noise_multiplier", 1.0, "0.99 with 10 clients", "least 11 "):
        train(tmp_path, "x", *FLAGS, "--dataset_name=emnist")
    with refused("dp_noise_multiplier", 2.0, "differentially_private"):
        train(tmp_path, "x", "--dp_noise_multiplier=2")
    # Of silos all take part; they are counted before TFF starts.
    with refused("dp_noise_multiplier", 1.0, "0.297 with 3 clients", "least 11 "):
        train(tmp_path, "x", *FLAGS)
    assert not (tmp_path / "x" / "run.json").exists()
