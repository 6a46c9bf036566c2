"""An experiment's directory: names, locks, flags."""

import contextlib
import json
import os

import pytest

import motley_tff
from motley_tff.experiment import run_directory
from tests.errors import refused

FLAGS = {"total_rounds": 3, "client_learning_rate": 0.1, "finetune_learning_rate": ["0.1"]}


def opened(root, flags=FLAGS, *more, name="run", **options):
    directory = run_directory.RunDirectory(str(root), name, flags, *more, **options)
    return contextlib.closing(directory)


def written(root, flags=FLAGS, **facts):
    """Writes the record of a run; returns what it says."""
    with opened(root, flags) as directory:
        directory.write_record(**{"status": "running", **facts})
    return json.loads((root / "run" / "run.json").read_text())


def test_record(tmp_path):
    written(tmp_path)
    record = written(tmp_path, status="finished")
    assert record["flags"] == FLAGS
    assert record["versions"]["tensorflow"].startswith("2.") and "python" in record["versions"]
    assert record["peak_memory_mb"] > 10
    with opened(tmp_path) as directory:
        assert directory.is_finished


@pytest.mark.parametrize("left", ["rounds.csv", "warm_start_1.npz"])
@pytest.mark.parametrize("flag", ["total_rounds", "client_learning_rate"])
def test_other_flags_are_refused_by_name(tmp_path, left, flag):
    written(tmp_path)
    (tmp_path / "run" / left).write_text("round\n1\n")
    with refused(str(tmp_path / "run"), f"{flag} ({FLAGS[flag]} then, 4 now)"):
        opened(tmp_path, {**FLAGS, flag: 4})


def test_what_came_to_nothing_may_be_begun_with_other_flags(tmp_path):
    written(tmp_path, status="stopped", reason="refused", data_files={"a": "1"})
    record = written(tmp_path, {**FLAGS, "total_rounds": 4})
    assert record["flags"]["total_rounds"] == 4 and not {"reason", "data_files"} & set(record)


def test_other_code_that_goes_on_with_a_run_is_named(tmp_path):
    path = tmp_path / "run" / "run.json"
    written(tmp_path)
    record = written(tmp_path)
    assert "continued_with" not in record
    path.write_text(json.dumps({**record, "git_commit": "an older one"}))
    written(tmp_path)
    rewritten = written(tmp_path)
    assert rewritten["git_commit"] == "an older one"
    mine = {name: record[name] for name in ("git_commit", "versions")}
    assert rewritten["continued_with"] == [mine]


def test_two_at_once_are_refused(tmp_path):
    with opened(tmp_path), refused(str(tmp_path / "run"), "another process", advice="wait"):
        opened(tmp_path)
    with opened(tmp_path):
        pass
    assert not list(tmp_path.iterdir())  # Nothing was written.


@pytest.mark.parametrize("name", ["=1+1", "../up", "", "a/b", "-x", ".", "a b", "x" * 200])
def test_names_that_are_no_file_names(tmp_path, name):
    with refused("experiment_name", name, "at most 128 letters"):
        opened(tmp_path, name=name)


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with refused(str(tmp_path / "file"), expected="written", advice="root_output_dir"):
        opened(tmp_path / "file")


def test_what_a_killed_process_left_half_written_is_swept(tmp_path):
    with opened(tmp_path) as directory:
        directory.write_record(status="running")
        for folder in (directory.path, directory.checkpoints, directory.figures):
            folder.mkdir(exist_ok=True)
            (folder / ".name.csv.x1y2.tmp").write_text("ha")
    with opened(tmp_path) as directory:
        assert not list(directory.path.rglob("*.tmp"))
        assert (directory.path / "run.json").exists()


def test_a_clock_that_is_set_back_makes_no_run_last_less_than_nothing(tmp_path, monkeypatch):
    with opened(tmp_path) as directory:
        monkeypatch.setattr("time.time", lambda: 0.0)
        directory.write_record(status="running")
        assert 0 <= directory.record["seconds"] < 60


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"flags": []}, "expected an object with flags"),
        ({"flags": {}, "seconds": "long"}, "found 'long' for seconds, expected float"),
        ({"flags": {}, "status": 1}, "found 1 for status, expected str"),
        ({"flags": {}, "data": float("nan")}, "not JSON compliant"),
    ],
)
def test_a_record_that_was_changed(tmp_path, record, words):
    os.makedirs(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    with refused("run.json", words, "JSON"):
        opened(tmp_path)
    for damaged, words in (("{", "line 1"), ("[" * 100_000, "maximum recursion depth")):
        (tmp_path / "run" / "run.json").write_text(damaged)
        with refused("run.json", words, "JSON"):
            opened(tmp_path)


def test_a_directory_that_was_moved_away_hides_no_error(tmp_path):
    with refused("run.json", "No such file"), opened(tmp_path) as directory:
        directory.path.rename(tmp_path / "elsewhere")
        directory.write_record(status="running")


def _made_before(root, version=None, status="running"):
    """Writes the record of a run whose results were of another version; returns its directory."""
    content = written(root, status=status)
    assert content.pop("results_version") == motley_tff.RESULTS_VERSION
    more = {} if version is None else {"results_version": version}
    (root / "run" / "run.json").write_text(json.dumps({**content, **more}))
    return root / "run"


@pytest.mark.parametrize("version", [None, 1, motley_tff.RESULTS_VERSION + 1])
@pytest.mark.parametrize("left", ["rounds.csv", "checkpoints", "warm_start_0.npz", "tasks/1.json"])
def test_a_run_of_other_results_is_not_gone_on_with(tmp_path, version, left):
    path = _made_before(tmp_path, version=version)
    if left.endswith(".csv"):
        (path / left).write_text("round\n1\n")
    else:
        (path / left).mkdir(parents=True)
    before = (path / "run.json").read_bytes()
    content, expected = f"version {version or 1}", str(motley_tff.RESULTS_VERSION)
    with refused(str(path), content, expected, "experiment_name"):
        opened(tmp_path)
    assert (path / "run.json").read_bytes() == before


def test_a_finished_run_of_other_results_is_still_shown(tmp_path):
    path = _made_before(tmp_path, status="finished")
    (path / "rounds.csv").write_text("round\n1\n")
    with opened(tmp_path) as directory:
        assert directory.is_finished


def test_a_run_of_other_results_that_came_to_nothing_is_begun_anew(tmp_path):
    _made_before(tmp_path)
    assert written(tmp_path)["results_version"] == motley_tff.RESULTS_VERSION


def test_a_flag_that_an_older_run_did_not_have_stood_at_its_default(tmp_path):
    _made_before(tmp_path, status="finished")
    flags = {**FLAGS, "l2": 0.0, "rates": (1, 2)}
    with opened(tmp_path, flags, {**flags, "total_rounds": 9}):
        pass
    with refused(finding="l2 (0.0 then, 0.5 now)"):
        opened(tmp_path, {**flags, "l2": 0.5}, flags)


def test_of_many_flags_that_differ_the_first_are_named(tmp_path):
    flags = {f"flag_{i:02d}": i for i in range(11)}
    written(tmp_path, flags, status="finished")
    with refused(finding="flag_07 (7 then, -1 now) and 3 more"):
        opened(tmp_path, dict.fromkeys(flags, -1))


@pytest.mark.parametrize(
    ("facts", "known"),
    [
        ({"trainer": "finetuning_trainer"}, "finetuning_trainer"),
        ({"plan": {}}, "motley_sweep"),
        ({"flags": {"loop.total_rounds": 3}}, "motley_tff.run"),
    ],
)
def test_a_directory_of_another_program_is_refused_by_its_name(tmp_path, facts, known):
    written(tmp_path, status="finished", **facts)
    with refused(str(tmp_path), known, "mtl_trainer"):
        opened(tmp_path, {"alpha": 1}, maker="mtl_trainer")
