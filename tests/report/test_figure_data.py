"""What figures show, from tables small enough to work it out by hand."""

import numpy as np
import pandas as pd
import pytest

from motley_tff.metrics import hurt
from motley_tff.report import (
    acceptance,
    box_plots,
    candidate_curves,
    collapse,
    communication,
    comparisons,
    composition,
    deltas,
    distribution_shift,
    improvement,
    runs,
    style,
    sweep_curves,
    tuning,
)
from tests.report import written

CLIENTS = {"a": (0.5, 0.75), "b": (0.5, 0.5), "c": (1.0, 0.75), "d": (0.25, 0.5)}


def compare(path):
    (comparison,) = comparisons.compare(runs.find([str(path)]))
    return comparison


def test_boxes(tmp_path):
    written.run(tmp_path, "ft", "fedavg+finetuning", CLIENTS)
    written.run(tmp_path, "alone", "local", {"a": (0.0, 0.25)}, number=0)
    local, tuned = box_plots.data(compare(tmp_path))
    # A model that nobody trained is no global model.
    assert (local.label, local.baseline.size) == ("Local training", 0)
    assert list(local.personalized) == [0.25]
    assert list(tuned.baseline) == [0.5, 0.5, 1.0, 0.25]
    assert list(tuned.personalized) == [0.75, 0.5, 0.75, 0.5]


def test_whiskers_and_limits():
    # Quartiles 2 and 4, so that whiskers reach to -1 and 7.
    values = np.array([1.0, 2.0, 3.0, 4.0, 20.0])
    assert box_plots.whiskers(values) == (1.0, 4.0)
    error = comparisons.Comparison("toy", "error", False, False, ())
    # A baseline 100 away would make lines of the other boxes.
    for baseline, limits in ((np.array([2.0, 6.0]), (0.7, 6.3)), (values + 100, (0.82, 4.18))):
        boxes = [box_plots.Boxes("a", baseline, values)]
        (ax,) = box_plots.draw(boxes, error, style.styles("a")).axes
        assert ax.get_xlim() == pytest.approx(limits)


def test_gains(tmp_path):
    clients = {"a": (4.0, 1.0), "b": (1.0, 2.0)}
    written.run(tmp_path / "e", "one", "ditto", clients, metric="error", higher_is_better=False)
    error = compare(tmp_path / "e")
    data = deltas.by_examples(error)
    assert list(data.panels[0].delta) == [3.0, -1.0] and list(data.panels[0].x) == [10.0, 20.0]
    (label,) = (t.get_text() for t in deltas.draw(data, error, {}).texts if "gain" in t.get_text())
    assert "less error" in label and not data.log_x
    tmp_path = tmp_path / "a"
    written.run(tmp_path, "one", "ditto", CLIENTS)
    written.run(tmp_path, "alone", "local", CLIENTS, number=0)
    (panel,) = deltas.by_rank(compare(tmp_path)).panels
    assert list(panel.delta) == [-0.25, 0.0, 0.25, 0.25]
    assert list(panel.is_hurt) == [True, False, False, False] and panel.pct_hurt == 25.0
    assert list(panel.x) == [12.5, 37.5, 62.5, 87.5]


def test_clients_without_a_finite_gain_or_a_known_size_count(tmp_path):
    # Who diverged is hurt, who has no baseline is not.
    clients = {**CLIENTS, "e": (0.5, float("nan")), "f": (float("nan"), 0.5)}
    sizes = {
        "num_personalization_examples": dict(zip("abcdef", (1, None, 3, 4, 5, 6), strict=True))
    }
    written.run(tmp_path, "one", "ditto", clients, valid=CLIENTS, more=sizes)
    comparison = compare(tmp_path)
    data = deltas.by_rank(comparison)
    (panel,) = data.panels
    np.testing.assert_array_equal(panel.delta, [np.nan, -0.25, 0.0, 0.25, 0.25, np.nan])
    assert panel.pct_hurt == hurt.pct_clients_hurt(comparison.series[0].runs[0].values)
    assert panel.pct_hurt == pytest.approx(100 / 3) and np.isfinite(panel.x).all()
    caption = deltas.caption(data, comparison)
    assert "(6 a panel)" in caption and "Diverged and counted, not drawn: 2." in caption
    assert list(deltas.by_examples(comparison).panels[0].x) == [1, 3, 4, 5, 6]


# Three rates, two epochs. Validation: at 0.1 the second epoch is best, at 1 and 10 the first; the
# last rate has the best mean, of test clients the second.
SCORES = {
    "valid": {"v": {"0": 0.5, "lr0.1_epoch1": 0.6, "lr0.1_epoch2": 0.7, "lr1.0_epoch1": 0.9,
                    "lr1.0_epoch2": 0.1, "lr10.0_epoch1": 0.95, "lr10.0_epoch2": 0.1}},
    "test": {
        "a": {"0": 0.5, "lr0.1_epoch1": 1.0, "lr0.1_epoch2": 0.5, "lr1.0_epoch1": 0.25,
              "lr1.0_epoch2": 1.0, "lr10.0_epoch1": 0.0, "lr10.0_epoch2": 1.0},
        "b": {"0": 0.5, "lr0.1_epoch1": 1.0, "lr0.1_epoch2": 0.75, "lr1.0_epoch1": 1.25,
              "lr1.0_epoch2": 1.0, "lr10.0_epoch1": 0.25, "lr10.0_epoch2": 1.0},
    },
}  # fmt: skip


def test_rates_take_the_epoch_that_validation_clients_choose_and_epochs_the_rate(tmp_path):
    tables = {"candidates": written.candidates(SCORES)}
    written.run(tmp_path, "one", "fedavg+finetuning", CLIENTS, tables=tables)
    comparison = compare(tmp_path)
    (curve,) = candidate_curves.rates(comparison).curves
    assert curve.x == [0.1, 1.0, 10.0]
    assert [v.mean for v in curve.metric] == [0.625, 0.75, 0.125]
    assert [v.mean for v in curve.pct_hurt] == [0.0, 50.0, 100.0]
    # One seed has no standard deviation over seeds.
    assert all(np.isnan(v.std) for v in curve.metric)
    (of_epochs,) = candidate_curves.epochs(comparison).curves
    assert of_epochs.x == [0.0, 1.0, 2.0]
    # Epoch 1: rate 10 has 0.95 on validation clients; epoch 2: rate 0.1 has 0.7.
    assert [v.mean for v in of_epochs.metric] == [0.5, 0.125, 0.625]
    assert [v.mean for v in of_epochs.pct_hurt] == [0.0, 100.0, 0.0]
    assert candidate_curves.coefficients(comparison) is None
    best, least = candidate_curves.rate_deltas(comparison).panels
    assert (best.label, list(best.delta)) == ("rate 10 (best mean in validation)", [-0.5, -0.25])
    assert (least.label, list(least.delta)) == ("rate 0.1 (fewest hurt in validation)", [0.0, 0.25])
    caption = deltas.caption(candidate_curves.rate_deltas(comparison), comparison)
    assert caption.startswith(
        "rate 0.1 (fewest hurt in validation) hurts the fewest clients (0.0%), "
        "rate 10 (best mean in validation) the most (100.0%)."
    )


def test_a_rate_at_which_clients_diverge_is_not_the_best_and_hurts(tmp_path):
    diverged = {"lr10.0_epoch1": float("nan"), "lr10.0_epoch2": float("nan")}
    scores = {split: {i: {**values, **diverged} for i, values in clients.items()}
              for split, clients in SCORES.items()}  # fmt: skip
    tables = {"candidates": written.candidates(scores)}
    written.run(tmp_path, "one", "fedavg+finetuning", CLIENTS, tables=tables)
    comparison = compare(tmp_path)
    data = candidate_curves.rates(comparison)
    assert [v.mean for v in data.curves[0].pct_hurt] == [0.0, 50.0, 100.0]
    assert "best mean at 1, fewest hurt at 0.1" in candidate_curves.caption(data, comparison)
    best, _ = candidate_curves.rate_deltas(comparison).panels
    assert best.label == "rate 1 (best mean in validation)"


def test_no_rate_is_the_best_if_clients_diverge_at_each(tmp_path):
    scores = {split: {i: {name: 0.5 if name == "0" else float("nan") for name in values}
                      for i, values in clients.items()}
              for split, clients in SCORES.items()}  # fmt: skip
    # On validation clients the last rate hurts the fewest, and the first is no best one.
    well = {"lr10.0_epoch1": 0.75, "lr10.0_epoch2": 0.75}
    scores["valid"]["w"] = {**scores["valid"]["v"], **well}
    tables = {"candidates": written.candidates(scores)}
    written.run(tmp_path, "one", "fedavg+finetuning", CLIENTS, tables=tables)
    comparison = compare(tmp_path)
    data = candidate_curves.rates(comparison)
    assert "no finite mean, fewest hurt at 0.1" in candidate_curves.caption(data, comparison)
    assert candidate_curves.rate_deltas(comparison) is None
    panel = sweep_curves.Panel("client_learning_rate", data.curves, True)
    caption = sweep_curves.caption([panel], comparison)
    assert "at no client_learning_rate, as no mean is finite" in caption


def test_a_best_value_at_the_end_of_what_was_tried_is_said_to_be(tmp_path):
    comparison = comparisons.Comparison("toy", "accuracy", True, False, ())
    values = [comparisons.Value(mean, 0.0) for mean in (0.25, 0.5)]
    last = candidate_curves.Data("rate", [candidate_curves.Curve("a", [1, 10], values, values)])
    assert "best mean at 10 (the last one tried)" in candidate_curves.caption(last, comparison)
    coefficients = last._replace(kind="coefficient")
    assert "best mean at 10, fewest" in candidate_curves.caption(coefficients, comparison)


def test_coefficients_over_two_seeds(tmp_path):
    for seed, shift in ((0, 0.0), (1, 0.5)):
        mine = {"0": 0.25, "c0.5": 0.5 + shift, "c1": 0.125}
        scores = {"valid": {"v": mine}, "test": {"a": mine}}
        tables = {"candidates": written.candidates(scores)}
        written.run(tmp_path, f"s{seed}", "fedavg+knn_per", CLIENTS, seed=seed, tables=tables)
    (curve,) = candidate_curves.coefficients(compare(tmp_path)).curves
    assert curve.x == [0.0, 0.5, 1.0]
    assert [v.mean for v in curve.metric] == [0.25, 0.75, 0.125]
    assert [v.std for v in curve.metric] == [0.0, 0.25, 0.0]
    assert [v.mean for v in curve.pct_hurt] == [0.0, 0.0, 100.0]


def test_labels_of_candidates():
    labels = "0 lr0.1_epoch1 lr1e-05_epoch1 7 k5_c0.5 c0.5 chosen".split()
    _, one, other, seven, *two, _ = labels
    assert candidate_curves.group(labels, "rate") == {0.1: [one], 1e-05: [other]}
    assert candidate_curves.group(labels, "epoch") == {1.0: [one, other], 7.0: [seven]}
    assert candidate_curves.group(labels, "coefficient") == {0.5: two}


def _sweep_row(rate, strength, seed, valid, test, **more):
    return {
        "client_learning_rate": rate, "lambda": strength, "base_random_seed": seed,
        "status": "finished", "valid_personalized_mean": valid, "test_personalized_mean": test,
        "test_pct_clients_hurt": 100 * test, **more,
    }  # fmt: skip


def test_a_sweep_shows_the_setting_that_is_best_on_validation_data(tmp_path):
    rows = [
        _sweep_row(0.1, 1, 0, 0.5, 0.25), _sweep_row(0.1, 1, 1, 0.5, 0.75),
        # Better on test data, worse on validation data.
        _sweep_row(0.1, 2, 0, 0.5, 0.9), _sweep_row(0.1, 2, 1, 0.25, 0.9),
        _sweep_row(0.01, 2, 0, 0.125, 0.125), _sweep_row(0.01, 2, 1, 0.125, 0.125),
        # Best of all under one seed, failed under the other.
        _sweep_row(0.01, 1, 0, 0.9, 0.9),
        _sweep_row(0.01, 1, 1, 0.9, 0.9, status="failed", reason="diverged"),
    ]  # fmt: skip
    path = written.sweep(tmp_path / "grid", rows)
    written.run(tmp_path, "best", "ditto", CLIENTS)
    comparison = compare(tmp_path)
    data = sweep_curves.data(comparison)
    assert [panel.name for panel in data] == ["client_learning_rate", "lambda"]
    rates, strengths = (panel.curves[0] for panel in data)
    assert (rates.label, rates.x) == ("Ditto", [0.01, 0.1])
    assert [(v.mean, v.std) for v in rates.metric] == [(0.125, 0.0), (0.5, 0.25)]
    assert [v.mean for v in rates.pct_hurt] == [12.5, 50.0]
    # At lambda 2 rate 0.1 is better on validation data: 0.375 against 0.125.
    assert [v.mean for v in strengths.metric] == [0.5, 0.9]
    assert "1 runs that did not finish" in sweep_curves.caption(data, comparison)
    assert comparison.sweeps[0].path == path


def test_shift(tmp_path):
    def scores(label, inside, outside):
        row = {"candidate": label, "metric": "accuracy", "loss": 1.0}
        return [
            row | {"split": split, "client_id": client, "value": v, "ood_value": o}
            for split in ("valid", "test")
            for client, v, o in zip("ab", inside, outside, strict=True)
        ]

    table = scores("0", (0.5, 1.0), (0.25, 0.75)) + scores("1", (1.0, 1.0), (0.0, 0.5))
    written.run(tmp_path, "one", "fedavg+finetuning", CLIENTS, tables={"candidates": table})
    (curve,) = distribution_shift.data(compare(tmp_path))
    assert list(curve.names) == ["global model", "1"]
    assert list(curve.inside) == [0.75, 1.0] and list(curve.outside) == [0.5, 0.25]


def test_of_many_epochs_those_of_the_paper_are_shown_at_the_chosen_rate():
    one = pd.Series({str(epoch): 0.5 for epoch in range(21)})
    names = ["global model", *(f"epoch {e}" for e in (1, 3, 5, 10, 15))]
    assert list(distribution_shift.selection(one, True)) == names
    two = pd.Series(
        {"0": 0.5} | {f"lr{rate}_epoch{e}": rate + e for rate in (0.1, 1.0) for e in range(1, 8)}
    )
    assert distribution_shift.selection(two, True)["epoch 5"] == "lr1.0_epoch5"
    # The least of them is at the other rate; that the global model has less still does not count.
    assert distribution_shift.selection(two, False)["epoch 5"] == "lr0.1_epoch5"
    assert list(distribution_shift.selection(pd.Series({"0": 1, "c0.5": 2}), True)) == [
        "global model", "c0.5",
    ]  # fmt: skip


def test_collapse_is_of_the_cluster_that_is_largest_in_the_end(tmp_path):
    shares = np.array([[0.5, 0.5], [0.75, 0.25], [0.75, 0.25], [0.0, 1.0]])
    # Cluster 1 has 2 of 4 rounds, too; the largest of each round would be 50, 75, 75, 100.
    assert list(collapse.largest_share(shares)) == [50.0, 25.0, 25.0, 100.0]
    # Of 20 rounds the last two count together, so that one odd round decides nothing.
    shares = np.array([[0.6, 0.4]] * 19 + [[0.45, 0.55]])
    assert list(collapse.largest_share(shares)) == [60.0] * 19 + [45.0]
    for seed, share in ((0, 1.0), (1, 0.5)):
        rows = [
            {"round": number, "cluster_1_share": share, "cluster_2_share": 1 - share}
            for number in (1, 2)
        ]
        tables = {"rounds": rows}
        written.run(tmp_path, f"s{seed}", "hypcluster", CLIENTS, seed=seed, tables=tables)
    (curve,) = collapse.data(compare(tmp_path))
    assert list(curve.rounds) == [1, 2] and curve.num_clusters == 2
    assert list(curve.low) == [50.0, 50.0] and list(curve.high) == [100.0, 100.0]
    assert list(curve.mean) == [75.0, 75.0]


def _summary(numbers):
    return [
        {"round": number, "split": split, "personalized_mean": mean, "bytes_down_total": down,
         "bytes_up_total": up}
        for number, mean, down, up in numbers
        for split in ("valid", "test")
    ]  # fmt: skip


def test_communication_adds_both_ways(tmp_path):
    for seed, mean in ((0, 0.5), (1, 1.0)):
        tables = {"summary": _summary([(5, 0.25, 300, 100), (10, mean, 600, 200)])}
        written.run(tmp_path, f"s{seed}", "ditto", CLIENTS, seed=seed, tables=tables)
    (curve,) = communication.data(compare(tmp_path))
    assert list(curve.bytes) == [400.0, 800.0] and list(curve.metric) == [0.25, 0.75]
    # One evaluation is no curve.
    tables = {"summary": _summary([(10, 0.5, 300, 100)])}
    written.run(tmp_path / "other", "one", "ditto", CLIENTS, tables=tables)
    assert communication.data(compare(tmp_path / "other")) == []


def test_units():
    found = [communication.unit(largest) for largest in (999.0, 1e6, 3e13)]
    assert found == [(1.0, "bytes"), (1e6, "MB"), (1e12, "TB")]


def test_composition(tmp_path):
    rows = [
        {"split": "test", "cluster_id": 1, "group": "en", "num_clients": 4},
        {"split": "test", "cluster_id": 2, "group": "es", "num_clients": 3},
        {"split": "test", "cluster_id": 1, "group": "es", "num_clients": 1},
        {"split": "valid", "cluster_id": 1, "group": "en", "num_clients": 9},
    ]
    # Of three clusters nobody chose the last.
    given = {"tables": {"clusters": rows}, "flags": {"num_clusters": 3}}
    written.run(tmp_path, "one", "hypcluster", CLIENTS, **given)
    data = composition.data(compare(tmp_path))
    (panel,) = data
    assert list(panel.clusters) == [1, 2] and composition.groups(data) == ["en", "es"]
    assert panel.num_clusters == 3
    assert {name: list(counts) for name, counts in panel.counts.items()} == {
        "en": [4.0, 0.0], "es": [1.0, 3.0],
    }  # fmt: skip


def test_sizes(tmp_path):
    names = ("split", "personalization_fraction", "personalized_mean", "pct_clients_hurt")
    values = (("test", 1.0, 0.75, 5.0), ("test", 0.25, 0.5, 20.0))
    rows = [dict(zip(names, row, strict=True)) for row in values]
    written.run(tmp_path, "one", "fedavg+finetuning", CLIENTS, tables={"sizes": rows})
    (curve,) = candidate_curves.sizes(compare(tmp_path)).curves
    assert curve.x == [25.0, 100.0]
    assert [v.mean for v in curve.metric] == [0.5, 0.75]
    assert [v.mean for v in curve.pct_hurt] == [20.0, 5.0]


def test_acceptance(tmp_path):
    rows = [
        {"split": "test", "rule": rule, "num_clients": 4, "num_accepted": accepted,
         "personalized_mean": mean, "pct_clients_hurt": 25.0}
        for rule, accepted, mean in (("always", 4, 0.5), ("validated", 1, 0.75))
    ]  # fmt: skip
    written.run(tmp_path, "one", "fedavg+finetuning", CLIENTS, tables={"acceptance": rows})
    always, validated = acceptance.data(compare(tmp_path))
    assert (always.rule, always.metric.mean, always.pct_accepted.mean) == ("always", 0.5, 100.0)
    assert (validated.rule, validated.metric.mean, validated.pct_accepted.mean) == (
        "validated", 0.75, 25.0,
    )  # fmt: skip


@pytest.mark.parametrize("value", [3.0, None])
def test_tuning_of_an_error_also_where_a_silo_diverged(tmp_path, value):
    clients = {"a": (4.0, 1.0), "b": (2.0, 3.0)}
    more = {
        "candidate_global": {"a": "3", "b": "3"},
        "candidate_per_client": {"a": "3", "b": "0"},
        "personalized_global": {"a": 1.0, "b": value},
        "personalized_per_client": {"a": 1.0, "b": 2.0},
    }
    options = {"valid": clients, "metric": "error", "higher_is_better": False}
    written.run(tmp_path, "one", "fedavg+finetuning", clients, more=more, **options)
    comparison = compare(tmp_path)
    data = tuning.data(comparison)
    (panel,) = data
    assert panel.pct_hurt == (50.0, 0.0)
    if value is not None:
        assert [v.mean for v in panel.means] == [3.0, 2.0, 1.5]
        assert list(panel.gain_global) == [3.0, -1.0] and list(panel.gain_per_client) == [3.0, 0.0]
        return
    assert list(panel.gain_global) == list(panel.gain_per_client) == [3.0]
    assert np.isnan(panel.means[1].mean)
    tuning.draw(data, comparison, {})
    caption = tuning.caption(data, comparison)
    assert "as good or better for none; not both means are finite for FedAvg + FT; " in caption


def test_no_tuning_where_both_ways_choose_the_same(tmp_path):
    more = {
        f"candidate_{how}": dict.fromkeys(CLIENTS, "personal") for how in ("global", "per_client")
    }
    more |= {f"personalized_{how}": dict.fromkeys(CLIENTS, 0.5) for how in ("global", "per_client")}
    written.run(tmp_path, "one", "ditto", CLIENTS, more=more)
    assert tuning.data(compare(tmp_path)) == []


def test_quantum_of_improvement_joins_runs_by_seed_and_client(tmp_path):
    local = {"c": (0.0, 0.5), "b": (0.0, 0.25), "a": (0.0, 1.0), "other": (0.0, 0.0)}
    for seed in (1, 2):
        written.run(tmp_path, f"alone{seed}", "local", local, number=0, seed=seed)
    written.run(tmp_path / "alone", "ft", "fedavg+finetuning", CLIENTS, seed=1)
    assert improvement.data(compare(tmp_path / "alone")) == [], "without local training"
    # Clusters have no FedAvg model of their own: it is that of the fine-tuning run of the seed.
    clusters = {"a": (0.0, 0.5), "b": (0.0, 1.0), "c": (0.0, 1.0)}
    written.run(tmp_path, "hc", "hypcluster", clusters, seed=1)
    written.run(tmp_path, "hc2", "hypcluster", clusters, seed=2)
    tuned, clustered = improvement.data(compare(tmp_path))
    # a: 0.75 - max(0.5, 1), b: 0.5 - max(0.5, 0.25), c: 0.75 - max(1, 0.5).
    assert list(tuned.values) == [-0.25, 0.0, -0.25]
    assert list(clustered.values) == [-0.5, 0.5, 0.0] and clustered.pct_improved == pytest.approx(
        100 / 3
    )
