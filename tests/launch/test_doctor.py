"""Tests of motley_doctor."""

import importlib
import importlib.metadata
import pathlib
import platform
import subprocess
import sys

import pytest

from datasets.options import DataOptions
from motley_tff.core.errors import UserError
from tests import toy
from tests.launch import commands
from tests.trainers import programs


@pytest.fixture
def doctor():
    with commands.opened("launch.doctor") as run:
        yield run


def test_all_is_well_and_a_data_set_described(doctor, tmp_path):
    (tmp_path / "school").mkdir()
    (tmp_path / "emnist_all.sqlite").write_bytes(b"1234")
    status, printed = doctor(
        f"--data_dir={tmp_path}", "--dataset_name=school", "--use_synthetic_data",
        f"--figures_dir={tmp_path / 'figures'}",
    )  # fmt: skip
    assert status == 0
    lines = [line for line in printed.splitlines() if not line.startswith(" ")]
    assert [line.split(":")[0] for line in lines] == [
        f"ok   {name}"
        for name in (
            "python", "packages", "machine", "tensorflow", "worker", "computation", "data_dir",
            "dataset",
        )
    ]  # fmt: skip
    assert "tensorflow-federated 0." in lines[1]
    assert lines[-2].endswith("contains emnist_all.sqlite (4 bytes), school/")
    assert "60 silos train together" in printed and "heterogeneity" in printed
    assert "silos: 60, 22 to 219 examples, median 108" in printed and "{}" not in printed
    pictures = {path.stem for path in (tmp_path / "figures").glob("*.png")}
    assert pictures == {"heterogeneity_school", "sizes_school"}


def test_pictures_of_other_data_stay_beside_each_other(doctor):
    name_of = importlib.import_module("launch.doctor")._name
    table = {"dataset_name": "table", "label_column": "y", "client_column": "c"}
    options = [
        DataOptions(**table, data_file="/one/sales.csv"),
        DataOptions(**table, data_file="/two/sales.csv"),
        DataOptions(**{**table, "label_column": "z"}, data_file="/one/sales.csv"),
        DataOptions("emnist", partition="iid"),
        DataOptions("emnist", partition="dirichlet:1"),
    ]
    names = [name_of(each, "cross_device") for each in options]
    assert len(set(names)) == 5
    assert all(name.startswith("table_sales_") for name in names[:3])
    assert name_of(options[0], "cross_device") == names[0]
    silos = DataOptions("cifar10", setting="cross_silo", use_synthetic_data=True)
    assert name_of(silos, "cross_silo") == "cifar10_silos"


@pytest.mark.parametrize(("number", "cohort"), [(3, 3), (11, 10)])
def test_devices_cohort_is_that_of_trainers(number, cohort):
    from launch import doctor

    task = toy.scalar_task({f"c{i}": [float(i)] for i in range(number)})
    sentence = doctor._roles(task)
    assert sentence.startswith(f"{number} clients train, {cohort} of them in each round; 1 others")


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        ([], 1, "TensorFlow was imported"),
        (["--data_dri=/x"], 2, "doctor: unknown flag --data_dri; did you mean --data_dir?\n"),
        (["--dataset_name=school", "--use_synthetic_data", "--gld23k"], 2,
         "doctor: --gld23k=True: "),
    ],
)  # fmt: skip
def test_wrong_flags_do_not_wait_for_tensorflow(tmp_path, flags, status, said):
    result = subprocess.run(
        [sys.executable, "-m", "launch.doctor", *flags],
        capture_output=True, text=True, env=programs.environment_without_tensorflow(tmp_path),
    )  # fmt: skip
    assert result.returncode == status and said in result.stderr
    assert status == 1 or (result.stdout, result.stderr.count("\n")) == ("", 1)


@pytest.fixture
def checks(doctor, monkeypatch):
    """Returns what runs the quick checks: `(*flags) -> (lines printed, the failure)`."""
    monkeypatch.setitem(sys.modules, "motley_tff.core.lazy", None)  # No TensorFlow.

    def run(*flags):
        with pytest.raises(UserError) as failure:
            doctor(*flags)
        assert failure.value.exit_status == 1
        return doctor.printed.getvalue().splitlines(), str(failure.value)

    return run


_NO_TENSORFLOW = "tensorflow: ModuleNotFoundError: import of motley_tff.core.lazy halted"


def test_every_failure_is_counted_and_the_first_is_told(checks, tmp_path, monkeypatch):
    lines, failure = checks(f"--data_dir={tmp_path / 'nowhere'}")
    assert [line[:11] for line in lines] == [
        "ok   python", "ok   packag", "ok   machin", "FAIL tensor", "FAIL data_d"
    ]  # fmt: skip
    assert failure.startswith(_NO_TENSORFLOW) and failure.endswith(" (and 1 more)")
    _, failure = checks()
    assert failure.startswith(_NO_TENSORFLOW) and "more" not in failure
    monkeypatch.setattr(platform, "python_version_tuple", lambda: ("3", "12", "1"))
    line = checks()[0][0]
    assert line.startswith("FAIL python: ") and "expected Python 3.10 or 3.11" in line


def test_data_directories(checks, tmp_path):
    def found():
        return checks(f"--data_dir={tmp_path / 'data'}")[0][-1]

    (tmp_path / "data").touch()
    assert found().startswith("FAIL data_dir: ") and "Not a directory" in found()
    (tmp_path / "data").unlink()
    (tmp_path / "data").mkdir()
    assert found().startswith("ok   data_dir: ") and found().endswith("contains nothing")
    for number in range(25):
        (tmp_path / "data" / f"{number:02}").touch()
    assert found().endswith("19 (0 bytes) and 5 more")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "gone")
    assert f"{tmp_path / 'data' / 'link'}: " in found()


def test_packages_that_are_missing_or_not_as_pinned(checks, monkeypatch):
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda n: version(n) if n != "numpy" else "1"
    )
    line = checks()[0][1]
    assert line.count("(not as pinned)") == 1 and "numpy 1 (not as pinned), scipy " in line

    def missing(name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    lines, failure = checks()
    assert lines[1].startswith("FAIL packages: found no tensorflow, tensorflow-federated, ")
    assert failure.startswith("packages: ") and failure.endswith("(and 1 more)")


@pytest.fixture
def machine(checks, monkeypatch):
    """Returns what `machine` says where these files of the system have these texts."""

    def told(files):
        def read(path):
            if str(path).startswith(("/proc/", "/sys/")):
                if str(path) not in files:
                    raise FileNotFoundError
                return files[str(path)]
            return path.read_bytes().decode()

        monkeypatch.setattr(pathlib.Path, "read_text", read)
        return checks()[0][2]

    return told


@pytest.mark.parametrize(
    ("group", "limits", "words"),
    [
        ("0::/job/step", {"job": 2**31, "job/step": "max"}, " (limited to 2.0 GiB), "),
        ("9:cpu:/\n0::/", {"": 2**30}, " (limited to 1.0 GiB), "),
        ("0::/job", {"job": 2**60}, " GiB of memory, "),
        ("0::/job", {}, " GiB of memory, "),
    ],
)
def test_the_smallest_memory_limit_of_all_groups_is_told(machine, group, limits, words):
    files = {
        str(pathlib.Path("/sys/fs/cgroup", name, "memory.max")): f"{limit}\n"
        for name, limit in limits.items()
    }
    assert words in machine({"/proc/self/cgroup": f"{group}\n", **files})


@pytest.mark.parametrize(
    ("flags", "environment", "is_told"),
    [
        ("fma avx avx2", {}, True),
        ("fma avx2 avx512f avx512_vnni", {}, False),
        ("fma avx avx2", {"TF_ENABLE_ONEDNN_OPTS": "0"}, False),
        (None, {}, False),
    ],
)
def test_faster_convolutions_are_told_of(machine, monkeypatch, flags, environment, is_told):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = "" if flags is None else f"processor\t: 0\nflags\t\t: {flags}\n" * 2
    assert ("TF_ENABLE_ONEDNN_OPTS=1" in machine({"/proc/cpuinfo": text})) == is_told
