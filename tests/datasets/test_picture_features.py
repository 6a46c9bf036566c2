"""Features of pictures: principal components, and a classifier that a run trained."""

import csv
import json

import numpy as np
import pytest

from datasets import picture_features
from tests.errors import refused
from tests.launch import generated_runs
from tests.trainers import programs


def test_components_are_those_of_the_covariance():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (200, 4, 3), np.uint8)
    images[:, 0, 0] = 255 * (np.arange(200) % 2)
    rows = picture_features.flat(images)
    assert rows.shape == (200, 12) and rows.max() <= 1
    pca = picture_features.fit_pca(rows, 3)
    features = pca(rows)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-12)
    values = np.linalg.eigvalsh(np.cov(rows.T))[::-1]
    np.testing.assert_allclose(np.cov(features.T), np.diag(values[:3]), atol=1e-12)
    # The pixel that is white in every second picture is first.
    assert abs(pca.components[0, 0]) > 0.9
    # Others are projected as these.
    np.testing.assert_allclose(pca(rows[:5]), features[:5])


@pytest.mark.parametrize(
    ("images", "problem", "expected"),
    [
        (np.zeros((3, 4)), "[3, 4]", "pictures"),
        (np.full((3, 4, 4), 1.5), "1.5 to 1.5", "0 to 255"),
        (np.full((3, 4, 4), np.nan), "nan", "0 to 255"),
        (np.full((3, 4, 4), -1), "-1 to -1", "0 to 255"),
        (np.zeros((0, 4, 4)), "[0, 4, 4]", "pictures"),
    ],
)
def test_what_are_no_pictures(images, problem, expected):
    with refused(finding=problem, expected=expected):
        picture_features.flat(images)


@pytest.mark.parametrize(
    ("rows", "size", "expected"),
    [
        *((np.random.default_rng(0).random((50, 12)), size, "1 to 12") for size in (0, 13)),
        # Others are made by rounding.
        (np.full((40, 12), 7.0), 1, "at most 0,"),
        (np.eye(12)[:5], 5, "at most 4,"),
    ],
)
def test_components_that_are_not_there(rows, size, expected):
    with refused(f"pca:{size}", expected=expected):
        picture_features.fit_pca(rows, size)
    if expected == "at most 4,":
        assert picture_features.fit_pca(rows, 4)(rows).shape == (5, 4)


def test_what_is_no_run(tmp_path):
    with refused("features", str(tmp_path), "pca:K"):
        picture_features.classifier(tmp_path)
    (tmp_path / "run.json").write_text('{"flags": {"dataset_name": "school"}}')
    with refused("classifier", str(tmp_path), "on school"):
        picture_features.classifier(tmp_path, "classifier")
    (tmp_path / "run.json").write_text('{"flags": {"dataset_name": "mnist", "generator": "ddpm"}}')
    with refused("features", str(tmp_path), "no generator's"):
        picture_features.classifier(tmp_path)


def _run(folder, **flags):
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"flags": flags}))
    return folder


def test_generators_of_other_pictures(tmp_path):
    of_digits = {"dataset_name": "emnist", "only_digits": True, "image_size": None}
    run = _run(tmp_path / "classifier", **of_digits, model="lenet")
    of_model = {"model": None, "use_synthetic_data": False, "base_random_seed": 3}
    alike = _run(tmp_path / "alike", **of_digits, **of_model, generator="ddpm")
    picture_features.check_alike(run, [alike, alike])
    for name, value in (
        ("dataset_name", "mnist"), ("only_digits", False), ("use_synthetic_data", True),
        ("image_size", 32),
    ):  # fmt: skip
        other = _run(tmp_path / name, **{**of_digits, name: value})
        with refused(str(other), f"{name}={value}", f"{of_digits.get(name)}, as features={run}"):
            picture_features.check_alike(run, [alike, other])
    with refused("missing", expected="generative_trainer"):
        picture_features.check_alike(run, [tmp_path / "missing"])


@pytest.mark.slow
def test_a_classifier_of_ours(tmp_path):
    programs.run(
        "finetuning_trainer", tmp_path, "--dataset_name=emnist", "--only_digits", "--model=lenet",
        "--use_synthetic_data", "--total_rounds=2", "--finetune_max_epochs=0",
        "--experiment_name=lenet", "--final_evaluation_clients=1", "--clients_per_train_round=2",
        "--backend=sequential", eagerly=True,
    )  # fmt: skip
    classifier = picture_features.classifier(tmp_path / "lenet")
    assert (classifier.name, classifier.shape) == ("emnist's classifier lenet", (28, 28, 1))
    images = np.random.default_rng(0).integers(0, 256, (7, 28, 28, 1), np.uint8)
    features, classes = classifier(images), {}
    assert features.shape == (7, 84)
    x, _ = classifier.task.preprocess({"pixels": images[..., 0], "label": np.zeros(7)}, False, None)
    logits = classifier.model.predict(classifier.weights, x, False, None)
    np.testing.assert_allclose(
        features @ classifier.weights[-2] + classifier.weights[-1], logits, atol=1e-4
    )
    np.testing.assert_array_equal(classifier(images[..., 0]), features)
    np.testing.assert_array_equal(
        classifier.predicted(images), np.eye(10)[np.argmax(logits, axis=1)]
    )
    rng, classes_of = np.random.default_rng(1), np.argmax(logits, axis=1)
    np.savez(tmp_path / "clients.npz", a=images, b=images[:5])
    for name, number in (("few", 6), ("more", 9)):
        pictures = rng.integers(0, 256, (number, 28, 28, 1), np.uint8)
        np.savez(tmp_path / f"{name}.npz", images=pictures)
        classes[name] = classifier.predicted(pictures).argmax(axis=1)
    run, table = tmp_path / "lenet", tmp_path / "table.csv"
    said = generated_runs.score(
        f"--clients={tmp_path / 'clients.npz'}", f"--generated={tmp_path / 'few.npz'}",
        f"--generated={tmp_path / 'more.npz'}", f"--features={run}", f"--classifier={run}",
        "--num_neighbors=0", f"--output={table}",
    ).stdout  # fmt: skip
    _, counts = np.unique(np.concatenate([classes_of, classes_of[:5]]), return_counts=True)
    entropy = abs(-(counts / counts.sum() * np.log(counts / counts.sum())).sum())
    assert f"the clients' own pictures have a label entropy of {entropy:.3g} of 2.3 nats" in said
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        _, counts = np.unique(classes[row["generated"]], return_counts=True)
        shares = counts / counts.sum()
        assert float(row["label_entropy"]) == pytest.approx(-(shares * np.log(shares)).sum())
        assert row["num_classes"] == "10"
    for wrong in (images[:, :27], images / 255.0, np.repeat(images, 3, 3)):
        with refused(finding=str(wrong.dtype), expected="emnist's classifier lenet"):
            classifier(wrong)
