"""Tests of motley_doctor."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

from launch import doctor
from tests.trainers import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _doctor(*arguments, environment=None):
    return subprocess.run(
        [sys.executable, "-m", "launch.doctor", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_all_is_well(tmp_path):
    (tmp_path / "school").mkdir()
    (tmp_path / "emnist_all.sqlite").write_bytes(b"1234")
    result = _doctor(f"--data_dir={tmp_path}")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"ok   {name}"
        for name in (
            "python", "packages", "machine", "tensorflow", "worker", "computation", "data_dir"
        )
    ]  # fmt: skip
    assert "tensorflow-federated 0." in lines[1]
    assert lines[-1].endswith("contains emnist_all.sqlite (4 bytes), school/")


@pytest.mark.slow
def test_what_is_wrong_is_the_last_line(tmp_path):
    result = _doctor(f"--data_dir={tmp_path / 'nowhere'}")
    assert result.returncode == 1
    assert "FAIL data_dir: " in result.stdout.splitlines()[-1]
    assert result.stderr.count("\n") == 1
    assert "nowhere: expected something readable, found No such file" in result.stderr


def test_a_wrong_flag_does_not_wait_for_tensorflow(tmp_path):
    environment = programs.environment_without_tensorflow(tmp_path)
    assert "TensorFlow was imported" in str(_doctor(environment=environment))
    result = _doctor("--data_dri=/data", environment=environment)
    assert result.returncode == 2
    assert result.stderr == "doctor: unknown flag --data_dri; did you mean --data_dir?\n"
    assert result.stdout == ""


def test_a_wrong_data_set_does_not_wait_for_tensorflow(tmp_path):
    environment = programs.environment_without_tensorflow(tmp_path)
    wrong = ("--dataset_name=school", "--use_synthetic_data", "--gld23k")
    result = _doctor(*wrong, environment=environment)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "doctor: --gld23k: expected --dataset_name=landmark, found school; leave --gld23k out\n"
    )
    result = _doctor("--dataset_name=shcool", environment=environment)
    assert result.returncode == 2
    assert "did you mean 'school'?" in result.stderr


def test_help():
    result = _doctor("--help")
    assert result.returncode == 0
    assert "--data_dir=" in result.stdout
    assert "--worker_timeout_seconds=" in result.stdout


def test_a_data_directory_with_a_dead_link(tmp_path):
    os.symlink(tmp_path / "gone", tmp_path / "link")
    with pytest.raises(doctor.CheckFailed, match=r"link: expected something readable, found No"):
        doctor.data_directory(tmp_path)


def test_a_data_directory_that_is_a_file(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(doctor.CheckFailed, match="Not a directory"):
        doctor.data_directory(path)


def test_long_listings_are_cut(tmp_path):
    for number in range(25):
        (tmp_path / f"{number:02}").touch()
    assert doctor.data_directory(tmp_path).endswith("19 (0 bytes) and 5 more")


def test_an_empty_data_directory(tmp_path):
    assert doctor.data_directory(tmp_path).endswith("contains nothing")


def test_every_failure_is_counted_and_the_first_is_told(capsys):
    report = doctor._Report()

    def broken():
        raise ZeroDivisionError("one\ntwo")

    assert report.check("fine", lambda: "found")
    assert not report.check("first", broken)
    assert not report.check("second", broken)
    with pytest.raises(doctor.CheckFailed, match=r"first: ZeroDivisionError: one two \(and 1 more"):
        report.conclude()
    assert capsys.readouterr().out.splitlines()[:2] == [
        "ok   fine: found",
        "FAIL first: ZeroDivisionError: one two",
    ]


def test_a_missing_package_fails(monkeypatch):
    monkeypatch.setattr(doctor, "_PACKAGES", ("numpy", "no-such-package"))
    with pytest.raises(doctor.CheckFailed, match="not installed: no-such-package"):
        doctor._packages()


def test_a_version_that_is_not_the_pinned_one_is_said(monkeypatch):
    monkeypatch.setattr(doctor, "_PACKAGES", ("numpy", "scipy"))
    installed = {"numpy": "0.1", "scipy": importlib.metadata.version("scipy")}
    monkeypatch.setattr(importlib.metadata, "version", installed.get)
    expected = f"numpy 0.1 (not as pinned), scipy {installed['scipy']}"
    assert doctor._packages() == expected


def test_another_python_is_refused(monkeypatch):
    monkeypatch.setattr(doctor.platform, "python_version_tuple", lambda: ("3", "12", "1"))
    with pytest.raises(doctor.CheckFailed, match=r"expected Python 3\.10 or 3\.11, found"):
        doctor._python()


@pytest.mark.parametrize(
    ("group", "limits", "told"),
    [
        ("0::/job/step", {"job": 2**31, "job/step": "max"}, " (limited to 2.0 GiB), "),
        ("0::/job/step", {"job": 2**31, "job/step": 2**30}, " (limited to 1.0 GiB), "),
        ("9:cpu:/\n0::/", {".": 2**30}, " (limited to 1.0 GiB), "),
        ("0::/job", {"job": 2**60}, " GiB of memory, "),
        ("0::/job", {"job": "max"}, " GiB of memory, "),
        ("0::/job", {}, " GiB of memory, "),
        ("4:memory:/job", {}, " GiB of memory, "),
    ],
)
def test_the_smallest_memory_limit_of_all_groups_is_told(
    tmp_path, monkeypatch, group, limits, told
):
    own = tmp_path / "cgroup"
    own.write_text(f"{group}\n")
    for name, limit in limits.items():
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "memory.max").write_text(f"{limit}\n")
    monkeypatch.setattr(doctor, "_OWN_GROUP", own)
    monkeypatch.setattr(doctor, "_GROUPS", tmp_path)
    assert told in doctor._machine()


@pytest.mark.parametrize(
    ("flags", "environment", "is_told"),
    [
        ("fma avx avx2", {}, True),
        ("fma avx2 avx512f avx512_vnni", {}, False),
        ("fma avx2 avx_vnni", {}, False),
        ("fma avx avx2", {"TF_ENABLE_ONEDNN_OPTS": "0"}, False),
        (None, {}, False),
    ],
)
def test_faster_convolutions_are_told_of(tmp_path, monkeypatch, flags, environment, is_told):
    information = tmp_path / "cpuinfo"
    information.write_text("" if flags is None else f"processor\t: 0\nflags\t\t: {flags}\n" * 2)
    monkeypatch.setattr(doctor, "_CPU_INFO", information)
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("TF_ENABLE_ONEDNN_OPTS=1" in doctor._machine()) == is_told


@pytest.mark.slow
def test_describes_a_data_set(tmp_path):
    result = subprocess.run(
        [
            sys.executable, "-m", "launch.doctor", "--dataset_name=school", "--use_synthetic_data",
            f"--figures_dir={tmp_path}",
        ],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    assert "60 silos train together" in result.stdout and "heterogeneity" in result.stdout
    assert "silos: 60, 22 to 219 examples, median 108" in result.stdout
    assert "{}" not in result.stdout
    assert (tmp_path / "heterogeneity_school.png").read_bytes().startswith(b"\x89PNG")
