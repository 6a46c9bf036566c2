import pathlib
import subprocess
import sys

import pytest

import datasets
from motley_tff.core import errors
from tests.datasets.conftest import PROJECT


def test_importing_the_package_loads_no_tensorflow():
    program = (
        "import sys, datasets, datasets.options; datasets.check_name('emnist'); "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('tensorflow', 'tensorflow_federated', 'keras', 'jax', 'sklearn', 'matplotlib')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_package_is_this_projects():
    assert pathlib.Path(datasets.__file__).resolve().parent == PROJECT / "datasets"


def test_unknown_name_says_the_nearest_and_all():
    with pytest.raises(errors.UserError, match=r"'emnits'.*emnist, .*did you mean 'emnist'"):
        datasets.create_task(datasets.DataOptions("emnits"))
    with pytest.raises(errors.UserError, match=r"'zzz': expected one of .*emnist, .*school"):
        datasets.check_name("zzz")


@pytest.mark.parametrize(
    ("option", "owner"),
    [
        ("only_digits", "emnist"),
        ("group_key", "emnist"),
        ("gld23k", "landmark"),
        ("mask_padding", "ted_multi"),
    ],
)
def test_an_option_is_one_data_sets_alone(option, owner):
    datasets.check_options(datasets.DataOptions(owner, **{option: True}))
    expected = f"--{option}: expected --dataset_name={owner}, found school; leave --{option} out"
    with pytest.raises(errors.UserError, match=expected):
        datasets.create_task(datasets.DataOptions("school", **{option: True}))
    with pytest.raises(errors.UserError, match="unknown dataset 'x'"):
        datasets.check_options(datasets.DataOptions("x", **{option: True}))


@pytest.mark.parametrize("option", ["val_split", "test_split", "lam_svm", "l2_reg"])
def test_options_of_silos_are_theirs(option):
    for value in (0.1, 0.0):  # Nought is given, too.
        with pytest.raises(errors.UserError, match=f"--{option}: expected --dataset_name="):
            datasets.check_options(datasets.DataOptions("emnist", **{option: value}))
    datasets.check_options(datasets.DataOptions("vehicle", **{option: 0.1}))


@pytest.mark.parametrize("option", ["lam_svm", "l2_reg"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_regularizers_are_finite_and_not_negative(option, value):
    with pytest.raises(errors.UserError, match=f"--{option}={value:g}: expected a finite number"):
        datasets.create("vehicle", use_synthetic_data=True, **{option: value})


@pytest.mark.parametrize("shares", [(0.0, None), (None, -0.1), (0.5, 0.5), (0.9, None), (1.5, 0.1)])
def test_shares_that_leave_a_part_nothing(shares):
    options = datasets.DataOptions("school", val_split=shares[0], test_split=shares[1])
    with pytest.raises(errors.UserError, match="--val_split=.*together below 1"):
        datasets.check_options(options)
