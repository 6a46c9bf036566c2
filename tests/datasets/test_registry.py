import pathlib
import subprocess
import sys

import pytest

import datasets
from motley_tff.core import options as options_lib
from tests.datasets.conftest import PROJECT
from tests.errors import refused


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
    with refused("dataset_name", "emnits", "emnist, ", "'emnist'"):
        datasets.create_task(datasets.DataOptions("emnits"))
    with refused("dataset_name", "zzz", "emnist, "):
        datasets.check_name("zzz")


def _other_value(option):
    """Returns a value of an option that is not its default."""
    if option.choices:
        return next(choice for choice in option.choices if choice != option.default)
    text = "day_first" if option.field == "date_format" else "tab"
    value = {bool: True, int: 8, float: 0.1, str: text}[option.kind]
    return (value,) if option.is_list else value


@pytest.mark.parametrize(
    "option",
    [o for o in options_lib.options(datasets.DataOptions) if o.owners],
    ids=lambda option: option.field,
)
def test_an_option_is_its_owners_alone(option):
    value = _other_value(option)
    for name in datasets.REGISTRY:
        options = datasets.DataOptions(name, **{option.field: value})
        if name in option.owners:
            options_lib.check_owners(options, option.name, name)
        elif option.field.endswith("_clients"):  # Silos and clients that are dealt have reasons.
            with refused(option.name.field, value):
                datasets.check_options(options)
        else:
            with refused(option.name.field, value, f"dataset_name={' or '.join(option.owners)}"):
                datasets.check_options(options)


@pytest.mark.parametrize(
    ("shares", "place"),
    [
        ({"val_split": 0.0}, "val_split"),
        ({"test_split": -0.1}, "test_split"),
        ({"val_split": 0.4, "test_split": 0.6}, "test_split"),
        ({"val_split": 0.9}, "val_split"),
        ({"val_split": 1.5, "test_split": 0.1}, "val_split"),
    ],
)
def test_shares_that_leave_a_part_nothing(shares, place):
    options = datasets.DataOptions("school", **shares)
    with refused(place, getattr(options, place)):
        datasets.check_options(options)
