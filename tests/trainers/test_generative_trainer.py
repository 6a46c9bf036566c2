"""generative_trainer: what it leaves, backends, resume, and flags that do not go together."""

import json

import numpy as np
import PIL.Image
import pytest

import datasets
from datasets.kinds import generators
from datasets.options import DataOptions, GeneratorOptions
from motley_tff.files import model_files
from tests.trainers import programs

_FLAGS = (
    "--dataset_name=mnist", "--use_synthetic_data", "--generator_width=8", "--total_rounds=2",
    "--rounds_per_evaluation=1", "--rounds_per_checkpoint=1", "--num_generated=12",
    "--train_steps=6", "--train_batch_size=4", "--clients_per_train_round=3",
)  # fmt: skip
_KEPT = ("--setting=cross_silo", "--partition=classes:5", "--num_clients=4",
         "--keep_optimizer_state", "--max_examples_per_client=16")  # fmt: skip


def run(root, *flags, **kwargs):
    return programs.run("generative_trainer", root, *flags, **kwargs)


def _pictures(root, name, number):
    with np.load(root / name / "generated" / f"round_{number:05d}.npz") as file:
        return file["images"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    stdout, _ = run(root, *_FLAGS, "--experiment_name=whole")
    (root / "said").write_text(stdout)
    return root


def test_says_where_the_pictures_are(finished):
    said = (finished / "said").read_text()
    whole = finished / "whole"
    words = "to score its pictures, in generated: motley_generative --run="
    assert f"\n{words}{whole} --features=pca:64\n" in said
    assert f"\n{whole / 'generated'}\n{whole / 'figures'}\n" in said and "no test cl" not in said


def test_both_nets_are_trained(finished):
    digits = datasets.create_task(DataOptions("mnist", use_synthetic_data=True))
    model = generators.as_generative(digits, GeneratorOptions("wgan_gp", width=8)).model
    exported = model_files.load(str(finished / "whole"), model.shapes, model.names)
    kernels = [i for i, name in enumerate(model.names) if name.endswith("kernel:0")]
    assert len(kernels) == 8
    for i in kernels:
        assert not np.allclose(exported[i], model.initial_weights(0)[i]), model.names[i]


def test_leaves_pictures_and_clients(finished):
    pictures = _pictures(finished, "whole", 2)
    assert pictures.shape == (12, 28, 28, 1) and pictures.dtype == np.uint8
    assert not np.array_equal(pictures, _pictures(finished, "whole", 1))
    with np.load(finished / "whole" / "generated" / "clients.npz") as file:
        assert set(file.files) == {"images", "client_id"}
        assert file["images"].shape[1:] == (28, 28, 1)
        assert len(file["images"]) == len(file["client_id"]) > 500
    grid = PIL.Image.open(finished / "whole" / "figures" / "generated_00002.png")
    assert grid.mode == "L" and grid.width > 280
    rounds = programs.table(finished, "whole", "rounds")
    assert list(rounds["round"]) == [1, 2] and rounds.train_critic_gap.notna().all()
    summary = programs.table(finished, "whole", "summary")
    assert set(summary.algorithm) == {"wgan_gp"}
    record = json.loads((finished / "whole" / "run.json").read_text())
    assert record["constant_prediction"] == {}


@pytest.mark.slow
def test_killed_and_given_again(tmp_path):
    run(tmp_path, *_FLAGS, *_KEPT, "--experiment_name=whole")
    (root := tmp_path / "again").mkdir()
    first = root / "cut" / "checkpoints" / "round_00000001.npz"
    flags = (*_FLAGS, *_KEPT, "--experiment_name=cut")
    programs.cut("generative_trainer", root, *flags, at=first.exists, number=9)
    run(root, *flags)
    for number in (0, 1, 2):
        np.testing.assert_array_equal(
            _pictures(root, "cut", number), _pictures(tmp_path, "whole", number)
        )
    whole, cut = tmp_path / "whole" / "summary.csv", root / "cut" / "summary.csv"
    assert whole.read_text() == cut.read_text().replace("cut", "whole")


@pytest.mark.slow
def test_backends_agree(tmp_path):
    for backend in ("sequential", "tff"):
        name = (f"--experiment_name={backend}", f"--backend={backend}")
        run(tmp_path, *_FLAGS, *name, "--dropout_rate=0.3", "--straggler_rate=0.5")
    a, b = (programs.table(tmp_path, name, "rounds").train_loss for name in ("sequential", "tff"))
    np.testing.assert_allclose(a, b, rtol=2e-4)
    gap = np.abs(_pictures(tmp_path, "tff", 2).astype(int) - _pictures(tmp_path, "sequential", 2))
    assert gap.max() <= 2


@pytest.mark.slow
def test_in_one_place_and_alone(tmp_path):
    small = ("--generator=ddpm", "--diffusion_steps=30", "--sampling_steps=3", "--total_rounds=1")
    where = ("--algorithm=centralized", "--experiment_name=central")
    run(tmp_path, *_FLAGS, *small, *where, eagerly=True)
    run(tmp_path, *_FLAGS, "--setting=cross_silo", "--only_client=3", "--partition=classes:1",
        "--num_clients=10", "--experiment_name=wrong", status=2)  # fmt: skip
    assert set(programs.table(tmp_path, "central", "rounds").num_clients) == {1}


def test_what_betas_stand_for_is_recorded(finished):
    flags = json.loads((finished / "whole" / "run.json").read_text())["flags"]
    assert (flags["client_adam_beta_1"], flags["client_adam_beta_2"]) == (0.0, 0.9)
    arguments = (*_FLAGS, "--experiment_name=whole")
    run(finished, *arguments, "--client_adam_beta_1=0", "--client_adam_beta_2=0.9")
    _, stderr = run(finished, *arguments, "--client_adam_beta_1=0.9", status=2)
    assert "--client_adam_beta_1 (0.0 then, 0.9 now)" in stderr


def test_another_width_is_not_resumed(finished):
    flags = [flag for flag in _FLAGS if "width" not in flag]
    _, stderr = run(finished, *flags, "--generator_width=16", "--experiment_name=whole", status=2)
    assert "generator_width" in stderr
