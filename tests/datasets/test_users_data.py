"""What tables, pictures and texts of a user share: settings, options, backends that agree."""

import dataclasses
import warnings

import numpy as np
import pytest

import datasets
from datasets.options import DataOptions
from motley_tff import interface
from motley_tff.algorithms import FedAvg
from motley_tff.experiment.config import BackendConfig
from tests import synthetic, toy
from tests.errors import refused

_SMALL = {
    "table": {},
    "images": {"model": "linear"},
    "text": {"label_column": "topic", "model_sizes": (4,)},
}


@pytest.mark.parametrize("name", datasets.USERS_DATA)
def test_silos_and_devices(name):
    silos = synthetic.task(name, setting="cross_silo", **_SMALL[name])
    assert silos.setting == "cross_silo" and silos.train.ids == silos.test.ids
    assert silos.is_own_data
    assert synthetic.task(name, **_SMALL[name]).setting == "cross_device"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "backend"), [("table", "vectorized"), ("images", "tff"), ("text", "vectorized")]
)
def test_backends_agree(name, backend):
    task = synthetic.task(name, **_SMALL[name])
    expected, actual = (
        interface.run(
            task, FedAvg(), rounds=1, clients_per_round=3, backend=BackendConfig(which)
        ).clients
        for which in ("sequential", backend)
    )
    for column in ("baseline_loss", "personalized_loss", "baseline", "personalized"):
        np.testing.assert_allclose(actual[column], expected[column], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (DataOptions("table", data_file="t.csv", client_column="c"), {"expected": "label_column"}),
        (DataOptions("text"), {"expected": "data_file"}),
        (DataOptions("images"), {"expected": "data_file"}),
        (DataOptions("images", data_dir="a", data_file="b"), {"expected": "data_dir"}),
        (
            DataOptions("table", use_synthetic_data=True, missing_values="NA"),
            {"where": "missing_values"},
        ),
    ],
)
def test_what_is_needed_is_said_before_anything_is_read(options, parts):
    with refused(**parts):
        datasets.check_options(options)


@pytest.mark.parametrize(
    ("name", "options", "shapes"),
    [
        ("images", {"model_sizes": (3, 5)}, ((3, 3, 1, 3), (3,))),
        ("images", {"model": "mlp", "model_sizes": (3, 5)}, ((784, 3), (3,), (3, 5))),
        ("images", {"model": "linear"}, ((784, 10), (10,))),
        ("table", {"model": "mlp", "model_sizes": (5,)}, ((5, 5), (5,), (5, 2), (2,))),
    ],
)
def test_models_and_their_sizes(name, options, shapes):
    task = datasets.create(name, use_synthetic_data=True, **options)
    assert task.model.shapes[: len(shapes)] == shapes


@pytest.mark.parametrize(
    ("name", "options", "where", "found", "expected"),
    [
        ("text", {"model": "lstm", "model_sizes": (3,)}, "model_sizes", (3,), "2 for lstm"),
        ("table", {"model_sizes": (5,)}, "model_sizes", (5,), "linear"),
        ("table", {"model": "cnn"}, "model", "cnn", "linear, mlp"),
    ],
)
def test_models_and_sizes_that_are_not_there(name, options, where, found, expected):
    with refused(where, found, expected):
        datasets.create(name, use_synthetic_data=True, **options)


@pytest.mark.usefixtures("eagerly")
def test_whoever_runs_is_told_what_is_left_out():
    facts = {
        "rows_without_label_left_out": 1211, "texts_left_out_beyond_1024_pieces": 2, "rows": 3,
        "images_left_out": {"no label": 4, "blank": 0}, "clients_left_out": {"too few": ["a"]},
        "files_left_out": 0, "notes": ["7 rows are odd"],
    }  # fmt: skip
    task = dataclasses.replace(toy.classifier_silos(), facts=facts)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        interface.run(task, FedAvg(), rounds=1, backend=BackendConfig("sequential"))
    assert [
        str(warning.message) for warning in said if "threads_per_client" not in str(warning.message)
    ] == [
        "of the data, 1,211 rows without label are left out",
        "of the data, 2 texts are left out beyond 1024 pieces",
        "of the data, 4 images are left out: no label",
        "7 rows are odd",
    ]
