"""hypcluster_trainer from end to end, on synthetic schools of planted groups."""

import numpy as np
import pandas as pd
import pytest

from tests.contracts import in_process
from tests.errors import refused
from tests.trainers import programs

SCHOOL = (
    "--dataset_name=school", "--use_synthetic_data", "--max_clients=8", "--num_clusters=3",
    "--num_warmstart_fedavg_rounds=2", "--total_rounds=4", "--rounds_per_evaluation=2",
    "--train_batch_size=32", "--backend=sequential",
)  # fmt: skip


def run(root, *flags, **kwargs):
    return programs.run("hypcluster_trainer", root, *flags, **kwargs)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    root = tmp_path_factory.mktemp("clustered")
    stdout, stderr = run(root, "--experiment_name=run", *SCHOOL, eagerly=True)
    return root, stdout, stderr


def test_files(clustered):
    root, stdout, stderr = clustered
    assert "warm start of model 3: 2/2" in stderr and "chosen" in stdout
    clients = programs.table(root, "run", "clients")
    assert set(clients.candidate) == {"chosen"} and set(clients.cluster_id) <= {1, 2, 3}
    # The baseline is the first cluster's model.
    first = clients[clients.cluster_id == 1]
    pd.testing.assert_series_equal(first.personalized, first.baseline, check_names=False)
    rounds = programs.table(root, "run", "rounds")
    shares = rounds[[f"cluster_{j}_share" for j in (1, 2, 3)]]
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1.0)
    assert (rounds.bytes_down == 3 * rounds.bytes_up).all()
    summary = programs.table(root, "run", "summary").iloc[-1]
    table = pd.read_csv(root / "run" / "clusters.csv")
    last = table[(table["round"] == 4) & (table.split == "test")]
    sizes = last.groupby("cluster_id").num_clients.sum()
    assert summary.largest_cluster_pct == pytest.approx(100 * sizes.max() / 8)
    best = last.groupby("cluster_id").num_clients.max().sum()
    assert summary.cluster_purity == pytest.approx(best / 8)
    assert -0.5 <= summary.cluster_ari <= 1 and last.group.notna().all()


def test_a_run_leaves_all_models_for_another(clustered, tmp_path):
    root, earlier = clustered[0], clustered[0] / "run"
    models = []
    for name in ("global", "cluster_1", "cluster_2", "cluster_3"):
        with np.load(earlier / f"{name}_model.npz") as file:
            models.append(np.concatenate([file["w000"].ravel(), file["w001"].ravel()]))
    assert not (earlier / "cluster_4_model.npz").exists()
    np.testing.assert_array_equal(models[0], models[1])
    assert len({model.tobytes() for model in models}) == 3
    flags = [f for f in SCHOOL if not f.startswith(("--total", "--num_"))]
    arguments = ("--total_rounds=0", f"--path_to_initial_model_weights_list={earlier}")
    run(tmp_path, "--experiment_name=again", *flags, "--num_clusters=3", *arguments, eagerly=True)
    before, again = (
        programs.table(r, n, "clients") for r, n in ((root, "run"), (tmp_path, "again"))
    )
    before = before[before["round"] == 4].reset_index()
    for column in ("client_id", "cluster_id", "baseline", "personalized"):
        assert (before[column] == again[column]).all(), column
    home = f"--path_to_initial_model_weights_list=~/{earlier.relative_to('/')}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", "/")
        flags_of_two = (*flags, "--num_clusters=2", "--total_rounds=0", home)
        _, stderr = run(tmp_path, "--experiment_name=x", *flags_of_two, status=2)
    assert "found 3" in stderr
    _, stderr = run(
        tmp_path, "--experiment_name=x", *flags, "--num_clusters=2", *arguments, status=2
    )
    assert "--num_clusters=2 models, found 3" in stderr and stderr.count("\n") == 1


def test_a_warm_start_has_rates_of_its_own(tmp_path):
    flags = ("--num_clusters=2", "--num_warmstart_fedavg_rounds=2", "--total_rounds=0",
             "--server_optimizer=adam", "--backend=sequential")  # fmt: skip
    rates = ("client_learning_rate=0.02", "server_learning_rate=0.3", "server_adam_epsilon=0.01")
    own = [f"--warmstart_{rate}" for rate in rates]
    with in_process.opened("hypcluster_trainer") as run_here:
        run_here(tmp_path, "all", *flags, *(f"--{rate}" for rate in rates))
        run_here(tmp_path, "own", *flags, *own)
        for name in ("warm_start_1.npz", "warm_start_2.npz"):
            assert (tmp_path / "all" / name).read_bytes() == (tmp_path / "own" / name).read_bytes()
        # Rates count: another warm start is not taken for this one.
        for i in range(3):
            with refused(str(tmp_path / "own"), own[i].partition("=")[0].removeprefix("--")):
                run_here(tmp_path, "own", *flags, *own[:i], *own[i + 1 :])


@pytest.mark.slow
def test_collapse_is_said_and_remedies_help(tmp_path):
    left_out = ("--backend", "--max_clients", "--num_warm", "--rounds_per")
    flags = [flag for flag in SCHOOL if not flag.startswith(left_out)]
    flags.append("--total_rounds=12")
    stdout, _ = run(tmp_path, "--experiment_name=collapsed", *flags, "--balance=0.001")
    assert "mode collapse" in stdout
    remedy = ("--cluster_initialization=updates", "--num_warmstart_fedavg_rounds=8")
    stdout, _ = run(tmp_path, "--experiment_name=split", *flags, *remedy)
    assert "mode collapse" not in stdout
    # Three planted groups of schools.
    assert programs.table(tmp_path, "split", "summary").cluster_ari.iloc[-1] > 0.8


def test_a_file_that_is_no_model(tmp_path, clustered):
    base = ("--dataset_name=school", "--use_synthetic_data", "--total_rounds=1", "--num_clusters=2")
    other = tmp_path / "weights.npz"
    other.write_bytes(b"PK not really")
    paths = f"{clustered[0] / 'run' / 'warm_start_1.npz'},{other}"
    flag = f"--path_to_initial_model_weights_list={paths}"
    _, stderr = run(tmp_path, "--experiment_name=y", *base, flag, status=2)
    assert str(other) in stderr and stderr.count("\n") == 1
