"""motley_rerun: the same run again, and what it says of one that is another."""

import fcntl
import json
import shutil
import signal
import subprocess
import sys

import pytest

from tests.trainers import programs

_RUNS = {
    "finetuning_trainer": ("--finetune_learning_rate=0.01,0.1", "--finetune_max_epochs=1"),
    "hypcluster_trainer": ("--num_clusters=2",),
    "knn_per_trainer": ("--coefficients=0.3,1",),
    "mtl_trainer": ("--algorithm=mocha", "--personal_learning_rate=0.02"),
    "generative_trainer": (
        "--dataset_name=mnist", "--train_steps=6", "--generator_width=4", "--num_generated=4",
        "--train_batch_size=4", "--clients_per_train_round=2",
    ),
}  # fmt: skip


def _rerun(run, root, *flags, status=0, **variables):
    command = [sys.executable, "-m", "launch.rerun", str(run), f"--root_output_dir={root}", *flags]
    result = subprocess.run(
        command, capture_output=True, text=True, env={**programs.environment(), **variables},
        timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == status, (result.stdout, result.stderr)
    return result


def _trained(root, trainer):
    flags = ("--dataset_name=school", "--use_synthetic_data", "--total_rounds=1")
    flags = flags if trainer != "generative_trainer" else flags[1:3]
    programs.run(trainer, root, *flags, *_RUNS[trainer], "--experiment_name=run")
    return root / "run"


@pytest.fixture(scope="module")
def school(tmp_path_factory):
    return _trained(tmp_path_factory.mktemp("school"), "mtl_trainer")


@pytest.fixture(scope="module")
def commit(tmp_path_factory):
    """A commit, and what makes git take it for the code's, whatever this checkout is."""
    folder = tmp_path_factory.mktemp("git")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    name = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    return name, {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}


def test_a_generators_betas_are_given_again(tmp_path):
    """Whatever they are: those that are not given depend on --generator."""
    record = {"run_id": "a", "command": ["generative_trainer"], "trainer": "generative_trainer"}
    for beta in (0.0, 0.9):
        flags = {"generator": "wgan_gp", "client_adam_beta_1": beta}
        code = f"""import pathlib; from launch import rerun; of = pathlib.Path("{tmp_path}")
print(rerun._command(of, { ({**record, "flags": flags}) }, of, {{}}))"""  # It declares flags.
        command = subprocess.check_output(
            [sys.executable, "-c", code], env=programs.environment(), text=True
        )
        assert f"'--client_adam_beta_1={beta}'" in command and "--generator" not in command


def _copy(run, folder, **record):
    shutil.copytree(run, folder)
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **record}))
    return folder


@pytest.mark.parametrize(
    "trainer",
    ["mtl_trainer", *(pytest.param(t, marks=pytest.mark.slow) for t in _RUNS if t[0] != "m")],
)
def test_each_trainers_run_is_the_same_again(tmp_path, trainer):
    run = _trained(tmp_path / "first", trainer)
    printed = _rerun(run, tmp_path / "again").stdout
    assert f"equal: every table of {run} but for times" in printed
    assert "another" not in printed
    tables = [p.name for p in (tmp_path / "again" / "run").glob("*.csv")]
    assert {"clients.csv", "candidates.csv", "rounds.csv", "summary.csv"} <= set(tables)


def _changed(run, folder, **record):
    """A copy in which the fourth line's baseline is 0.5."""
    other = _copy(run, folder, **record)
    lines = [line.split(",") for line in (other / "clients.csv").read_text().splitlines()]
    lines[3][lines[0].index("baseline")] = "0.5"
    (other / "clients.csv").write_text("".join(",".join(cells) + "\n" for cells in lines))
    return other


def test_code_that_nobody_knows_is_a_possible_cause(school, tmp_path, commit):
    name, variables = commit
    other = _changed(school, tmp_path / "none", git_commit=None)
    printed = _rerun(other, tmp_path / "again", status=1, **variables).stdout
    assert f"possible cause: unknown git_commit: none before, {name} now" in printed
    assert "please report" not in printed and "another" not in printed
    other = _changed(school, tmp_path / "dirty", git_commit=f"{name}-dirty")
    folder = tmp_path / "code"
    shutil.copytree(variables["GIT_WORK_TREE"], folder)
    for text in ("a", "b"):
        (folder / "code.py").write_text(text)
        subprocess.run(["git", "-C", str(folder), "add", "code.py"], check=True)
    variables = {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}
    printed = _rerun(other, tmp_path / "more", status=1, **variables).stdout
    assert f"possible cause: git_commit {name}-dirty: files were changed" in printed
    assert "please report" not in printed


def test_other_first_weights_and_plug_ins_explain_a_difference(school, tmp_path, commit):
    name, variables = commit
    first = ("--dataset_name=school", "--use_synthetic_data", "--total_rounds=1")
    path = f"--path_to_initial_model_weights={school}"
    programs.run("finetuning_trainer", tmp_path, *first, *_RUNS["finetuning_trainer"], path,
                 "--experiment_name=run")  # fmt: skip
    old = {"initial_weights": {"sha256": "abc"}, "git_commit": name}
    other = _changed(tmp_path / "run", tmp_path / "weights", **old)
    printed = _rerun(other, tmp_path / "again", **variables).stdout
    assert 'another initial_weights: {"sha256": "abc"} before, ' in printed
    assert "differs: " in printed and "please report" not in printed
    # Those that the seed draws are no reason: they should have been the same.
    other = _changed(school, tmp_path / "drawn", **old)
    printed = _rerun(other, tmp_path / "more", status=1, **variables).stdout
    assert "another" not in printed and "please report" in printed
    plugins = {"dataset": "a 1.0"}
    other = _changed(school, tmp_path / "plugins", plugins=plugins, git_commit=name)
    printed = _rerun(other, tmp_path / "most", **variables).stdout
    assert 'another plugins: {"dataset": "a 1.0"} before, none now' in printed


def test_the_first_cell_that_differs_is_named(school, tmp_path, commit):
    name, variables = commit
    other = _copy(school, tmp_path / "other", git_commit=name)
    text = (other / "clients.csv").read_text().splitlines()
    header = text[0].split(",")
    cells = text[3].split(",")
    before, cells[header.index("baseline")] = cells[header.index("baseline")], "0.5"
    text[3] = ",".join(cells)
    (other / "clients.csv").write_text("\n".join(text) + "\n")
    printed = _rerun(other, tmp_path / "again", status=1, **variables).stdout
    client = cells[header.index("client_id")]
    assert f"differs: clients.csv line 4 (round 1, split valid, client_id {client}" in printed
    assert f"column baseline: 0.5 before, {before} now" in printed
    assert "expected the same bytes" in printed
    record = json.loads((other / "run.json").read_text())
    changed = {"git_commit": "abc", "cpu": "Z80", "versions": {**record["versions"], "numpy": "1"}}
    (other / "run.json").write_text(json.dumps({**record, **changed}))
    shutil.rmtree(tmp_path / "again")
    printed = _rerun(other, tmp_path / "again").stdout
    assert "another git_commit: abc before, " in printed and "another cpu: Z80 before," in printed
    assert "another numpy: 1 before," in printed and "please report" not in printed
    assert "column baseline: 0.5 before" in printed
    # What an earlier rerun left is not taken for this one.
    earlier = _rerun(other, tmp_path / "again", status=2).stderr
    assert "found the run of an earlier motley_rerun" in earlier and earlier.count("\n") == 1


def test_other_data_explain_a_difference(tmp_path):
    rows = [f"u{i % 6},{i / 7:.3f},{i % 5}" for i in range(60)]
    data = tmp_path / "rows.csv"
    data.write_text("\n".join(["user,x,y", *rows]) + "\n")
    programs.run(
        "finetuning_trainer", tmp_path, "--dataset_name=table", f"--data_file={data}",
        "--client_column=user", "--label_column=y", "--total_rounds=1", "--experiment_name=run",
        "--clients_per_train_round=2",
    )  # fmt: skip
    data.write_text("\n".join(["user,x,y", *rows[:-1], "u5,9,4"]) + "\n")
    moved = data.rename(tmp_path / "elsewhere.csv")
    printed = _rerun(tmp_path / "run", tmp_path / "again", f"--data_file={moved}").stdout
    assert "another data: " in printed and "differs: " in printed


@pytest.mark.slow
def test_an_end_by_signal_ends_the_trainer_after_its_checkpoint(tmp_path):
    run = _trained(tmp_path / "first", "mtl_trainer")
    record = json.loads((run / "run.json").read_text())
    record["flags"] |= {"total_rounds": 100_000, "rounds_per_evaluation": 100_000}
    (run / "run.json").write_text(json.dumps(record))
    again = tmp_path / "again"
    command = [sys.executable, "-m", "launch.rerun", str(run), f"--root_output_dir={again}"]
    process = subprocess.Popen(
        command, env=programs.environment(), stderr=subprocess.PIPE, text=True, bufsize=1
    )
    for line in process.stderr:
        if "train: " in line:
            break
    process.terminate()
    _, error = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert "mtl_trainer: ended by SIGTERM; the same command goes on from there" in error
    with open(again / "run" / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Nobody runs it any more.


def test_columns_and_tables_of_one_side(school, tmp_path):
    other = _copy(school, tmp_path / "other", git_commit="abc")
    rounds = [line.partition(",") for line in (other / "rounds.csv").read_text().splitlines()]
    (other / "rounds.csv").write_text("".join(f"{rest}\n" for _, _, rest in rounds))
    printed = _rerun(other, tmp_path / "again").stdout
    assert "differs: rounds.csv, columns: with no more before, with run_id now" in printed


def test_a_table_that_is_gone_is_no_fault_of_the_machine(school, tmp_path, commit):
    name, variables = commit
    other = _copy(school, tmp_path / "other", git_commit=name)
    (other / "rounds.csv").unlink()
    printed = _rerun(other, tmp_path / "again", status=1, **variables).stdout
    assert "differs: rounds.csv: not there before, there now" in printed
    assert f"possible cause: {other}/rounds.csv is gone; put it back" in printed
    assert "please report" not in printed


def test_bad_input_is_one_line(school, tmp_path):
    (tmp_path / "empty").mkdir()
    latin, bare = (_copy(school, tmp_path / name) for name in ("latin", "bare"))
    (latin / "clients.csv").write_bytes(b"client_id\n\xe9\n")
    for path in bare.glob("*.csv"):
        path.unlink()
    cases = [
        (tmp_path / "empty", "found no run.json that can be read"),
        (_copy(school, tmp_path / "cut", status="running"), "a run that is not finished"),
        (_copy(school, tmp_path / "sweep", trainer="motley_sweep"), "found a run of motley_sweep"),
        (_copy(school, tmp_path / "api", flags=None), "has no flags; give a trainer's run"),
        (_copy(school, tmp_path / "null", command=None), "command: found null, expected a trainer"),
        (_copy(school, tmp_path / "list", command=[], trainer=None), "command: found [], expected"),
        (latin, "clients.csv: found what cannot be read ('utf-8' codec can't decode byte 0xe9"),
        (bare, "found no CSV to compare with"),
    ]
    for run, words in cases:
        result = _rerun(run, tmp_path / "again", status=2)
        assert result.stderr.count("\n") == 1 and words in result.stderr, result.stderr
    result = _rerun(school, school.parent, status=2)
    assert "give another directory" in result.stderr
    gone = _copy(school, tmp_path / "gone")
    record = json.loads((gone / "run.json").read_text())
    record["flags"] |= {"use_synthetic_data": False}
    (gone / "run.json").write_text(json.dumps({**record, "data_dir": str(tmp_path / "empty")}))
    result = _rerun(gone, tmp_path / "again", status=2)
    assert str(tmp_path / "empty") in result.stderr
    assert "the trainer ended with status 2; its message is above" in result.stderr
