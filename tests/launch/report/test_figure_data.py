"""What figures show, and the numbers beside them, from tables that one can work out by hand."""

import numpy as np
import pandas as pd
import pytest

from launch.report import (
    acceptance,
    box_plots,
    candidate_curves,
    causes,
    clusters,
    communication,
    comparisons,
    deltas,
    distribution_shift,
    explorer,
    figures,
    improvement,
    runs,
    style,
    sweep_curves,
    tuning,
)
from motley_tff.metrics import hurt
from tests.launch.report import written

CLIENTS = {"a": (0.5, 0.75), "b": (0.5, 0.5), "c": (1.0, 0.75), "d": (0.25, 0.5)}
NAN = float("nan")


def compare(path):
    (comparison,) = comparisons.compare(runs.find([str(path)]))
    return comparison


def check(table, **columns):
    """Asserts what a table says; `pct` stands for "hurt (%)"."""
    for name, values in columns.items():
        cells = table["hurt (%)" if name == "pct" else name].tolist()
        is_text = isinstance(values[0], str)
        assert cells == (values if is_text else pytest.approx(values, nan_ok=True)), name


def tuned(path, seed=0, **tables):
    """Writes a run with some tables."""
    written.run(path, f"tuned{seed}", "fedavg+finetuning", CLIENTS, seed=seed, tables=tables)


def numbers(name, path):
    """Returns the rows of the table beside a figure."""
    (kind,) = (kind for kind in figures.KINDS if kind.name == name)
    comparison = compare(path)
    return kind.function("numbers")(kind.function("data")(comparison), comparison)


def test_boxes_and_means_over_clients(tmp_path):
    written.run(tmp_path, "ft", "fedavg+finetuning", CLIENTS)
    written.run(tmp_path, "alone", "local", {"a": (0.0, 0.25), "b": (0.0, NAN)}, number=0)
    table = box_plots.data(compare(tmp_path))
    # A model that nobody trained is no global model.
    check(table, algorithm=["Local training"] * 2 + ["FedAvg + FT"] * 4)
    check(table, personalized=[0.25, -np.inf, 0.75, 0.5, 0.75, 0.5])
    assert (
        table["global"].tolist()[2:] == [0.5, 0.5, 1.0, 0.25] and table["global"][:2].isna().all()
    )
    local, tuned = numbers("box_plots", tmp_path)
    # No mean of one that diverged.
    assert local == {"algorithm": "Local training", "clients": 2, "outside the axis": 0}
    # t of three degrees of freedom is 3.182, the standard error sqrt(1 / 48) / 2.
    assert (tuned["mean"], tuned["mean, 95%"]) == (0.625, "0.3953 to 0.8547")


def test_a_client_of_two_seeds_counts_once_and_methods_are_compared_by_client(tmp_path):
    for seed, shift in ((0, 0.0), (1, 0.2)):
        mine = {"a": (0.5, 0.3 + shift), "b": (0.5, 0.5 + shift), "c": (0.5, 0.7 + shift)}
        written.run(tmp_path, f"one{seed}", "ditto", mine, seed=seed)
    written.run(tmp_path, "two", "mocha", {"c": (0.5, 0.5), "b": (0.5, 0.4), "a": (0.5, 0.3)})
    ditto, mocha = numbers("box_plots", tmp_path)
    assert ditto["clients"] == 3 and ditto["mean"] == pytest.approx(0.6)
    # Client by client -0.1, -0.2 and -0.3: a standard error of 0.1 / sqrt(3), t = 4.303.
    assert mocha["minus Ditto"] == pytest.approx(-0.2)
    assert mocha["minus Ditto, 95%"] == "-0.4484 to 0.04841"


def test_limits():
    # Quartiles 2 and 4, so that whiskers reach to -1 and 7.
    values = np.array([1.0, 2.0, 3.0, 4.0, 20.0])
    error = comparisons.Comparison("toy", "error", False, False, ())
    # A baseline 100 away would make lines of the other boxes.
    for baseline, limits in (([2, 6, 2, 6, 2], (0.7, 6.3)), (values + 100, (0.82, 4.18))):
        table = pd.DataFrame({"algorithm": "a", "global": baseline, "personalized": values})
        (ax,) = box_plots.draw(table, error, style.styles("a")).axes
        assert ax.get_xlim() == pytest.approx(limits)


def test_gains(tmp_path):
    clients = {"a": (4.0, 1.0), "b": (1.0, 2.0)}
    written.run(tmp_path / "e", "one", "ditto", clients, metric="error", higher_is_better=False)
    error = compare(tmp_path / "e")
    data = deltas.by_examples(error)
    check(data, **{"gain": [3.0, -1.0], deltas.SIZES: [10.0, 20.0]})
    figure = deltas.draw(data, error, {})
    (label,) = (t.get_text() for t in figure.texts if "gain" in t.get_text())
    assert "less error" in label and figure.axes[0].get_xscale() == "linear"
    tmp_path = tmp_path / "a"
    written.run(tmp_path, "one", "ditto", CLIENTS)
    written.run(tmp_path, "alone", "local", CLIENTS, number=0)
    data = deltas.by_rank(compare(tmp_path))
    check(data, gain=[-0.25, 0.0, 0.25, 0.25], is_hurt=[True, False, False, False])
    check(data, **{deltas.RANKS: [12.5, 37.5, 62.5, 87.5]})


def test_clients_without_a_finite_gain_or_a_known_size_count(tmp_path):
    # Who diverged is hurt, who has no baseline is not.
    clients = {**CLIENTS, "e": (0.5, NAN), "f": (NAN, 0.5)}
    sizes = {
        "num_personalization_examples": dict(zip("abcdef", (1, None, 3, 4, 5, 6), strict=True))
    }
    written.run(tmp_path, "one", "ditto", clients, valid=CLIENTS, more=sizes)
    comparison = compare(tmp_path)
    is_hurt = [True, True, False, False, False, False]
    check(deltas.by_rank(comparison), gain=[NAN, -0.25, 0.0, 0.25, 0.25, NAN], is_hurt=is_hurt)
    (row,) = numbers("delta_by_rank", tmp_path)
    assert (row["clients"], row["diverged"]) == (6, 2)
    assert row["hurt (%)"] == hurt.pct_clients_hurt(comparison.series[0].runs[0].values)
    assert row["hurt (%)"] == pytest.approx(100 / 3)
    check(deltas.by_examples(comparison), **{deltas.SIZES: [1, 3, 4, 5, 6]})


@pytest.mark.parametrize(
    "sizes, expected",
    [
        # The second is hurt: it counts wherever it stands among those that tie.
        ([1, 1, 1, 2, 3, 4], [100 / 3, 0]),
        ([4, 3, 3, 1, 2, 1], [0, 100 / 3]),
        ([1, 2, 3], [0, 0]),
        # Too few clients, or too many of one size.
        ([1, 2, 2, 2, 2, 3], []),
        ([1, 1, 1, 1, 1, 1], []),
        ([1, 2], []),
    ],
)
def test_clients_of_one_size_are_in_one_third(sizes, expected):
    clients = pd.DataFrame({"algorithm": "A", deltas.SIZES: sizes, "gain": 0.0})
    clients["is_hurt"] = clients.index == 1
    for table in (clients, clients[::-1].reset_index(drop=True)):
        (row,) = deltas.numbers(table, None)
        assert [row[name] for name in row if "examples" in name] == pytest.approx(expected)


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
RATE, EPOCH = candidate_curves.AXES["rate"], candidate_curves.AXES["epoch"]


def _write_scores(path, change=lambda name, value: value, **more):
    scores = {split: {i: {name: change(name, value) for name, value in values.items()}
                      for i, values in clients.items()}
              for split, clients in SCORES.items()}  # fmt: skip
    for split, clients in more.items():
        scores[split] |= clients
    tuned(path, candidates=written.candidates(scores))


def test_rates_take_the_epoch_that_validation_clients_choose_and_epochs_the_rate(tmp_path):
    _write_scores(tmp_path)
    comparison = compare(tmp_path)
    # One seed has no standard deviation over seeds.
    rates = candidate_curves.rates(comparison)
    check(rates, mean=[0.625, 0.75, 0.125], mean_std=[NAN] * 3, pct=[0.0, 50.0, 100.0])
    check(rates, **{RATE: [0.1, 1.0, 10.0]})
    # Epoch 1: rate 10 has 0.95 on validation clients; epoch 2: rate 0.1 has 0.7.
    epochs = candidate_curves.epochs(comparison)
    check(epochs, mean=[0.5, 0.125, 0.625], pct=[0.0, 100.0, 0.0], **{EPOCH: [0.0, 1.0, 2.0]})
    assert candidate_curves.coefficients(comparison).empty
    gains = candidate_curves.rate_deltas(comparison)
    best, least = "rate 10 (best mean in validation)", "rate 0.1 (fewest hurt in validation)"
    check(gains, algorithm=[best] * 2 + [least] * 2, gain=[-0.5, -0.25, 0.0, 0.25])
    assert [row["hurt (%)"] for row in deltas.numbers(gains, comparison)] == [100.0, 0.0]


def test_a_rate_at_which_clients_diverge_is_not_the_best_and_hurts(tmp_path):
    _write_scores(tmp_path, lambda name, value: NAN if name.startswith("lr10") else value)
    comparison = compare(tmp_path)
    check(candidate_curves.rates(comparison), pct=[0.0, 50.0, 100.0])
    (row,) = numbers("rate_curves", tmp_path)
    assert row == {
        "algorithm": "FedAvg + FT", "tried": "0.1 to 10", "best mean": 0.75, "best mean at": 1,
        "fewest hurt": 0, "fewest hurt at": 0.1,
    }  # fmt: skip
    gains = candidate_curves.rate_deltas(comparison)
    assert gains["algorithm"][0] == "rate 1 (best mean in validation)"


def test_no_rate_is_the_best_if_clients_diverge_at_each(tmp_path):
    # On validation clients the last rate hurts the fewest, and the first is no best one.
    well = {"lr10.0_epoch1": 0.75, "lr10.0_epoch2": 0.75}
    valid = {"w": {**SCORES["valid"]["v"], **well}}
    _write_scores(tmp_path, lambda name, value: 0.5 if name == "0" else NAN, valid=valid)
    (row,) = numbers("rate_curves", tmp_path)
    assert "best mean" not in row and row["fewest hurt at"] == 0.1
    assert candidate_curves.rate_deltas(compare(tmp_path)) is None


def test_coefficients_over_two_seeds(tmp_path):
    for seed, shift in ((0, 0.0), (1, 0.5)):
        mine = {"0": 0.25, "c0.5": 0.5 + shift, "c1": 0.125}
        scores = {"valid": {"v": mine}, "test": {"a": mine}}
        tables = {"candidates": written.candidates(scores)}
        written.run(tmp_path, f"s{seed}", "fedavg+knn_per", CLIENTS, seed=seed, tables=tables)
    curve = candidate_curves.coefficients(compare(tmp_path))
    check(curve, mean=[0.25, 0.75, 0.125], mean_std=[0.0, 0.25, 0.0], pct=[0.0, 0.0, 100.0])
    check(curve, **{candidate_curves.AXES["coefficient"]: [0.0, 0.5, 1.0]})
    # The global model at 0 hurts nobody, and is not meant.
    (row,) = numbers("coefficient_curves", tmp_path)
    assert (row["best mean at"], row["fewest hurt at"]) == (0.5, 0.5)


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
    check(data, hyperparameter=["client_learning_rate"] * 2 + ["lambda"] * 2)
    # At lambda 2 rate 0.1 is better on validation data: 0.375 against 0.125.
    check(data, x=[0.01, 0.1, 1, 2], mean=[0.125, 0.5, 0.5, 0.9], pct=[12.5, 50, 50, 90])
    check(data, mean_std=[0, 0.25, 0.25, 0], algorithm=["Ditto"] * 4)
    assert [row["runs left out"] for row in sweep_curves.numbers(data, comparison)] == [1, 1]
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
    tuned(tmp_path, candidates=table)
    # Models that another seed does not have are left out.
    tuned(tmp_path, seed=1, candidates=[*table, *scores("2", (0.0, 0.0), (0.0, 0.0))])
    assert numbers("distribution_shift", tmp_path) == [
        {"algorithm": "FedAvg + FT", "model": name, "own examples": own, "others' examples": others}
        for name, own, others in (("global model", 0.75, 0.5), ("1", 1.0, 0.25))
    ]


def test_of_many_epochs_those_of_the_paper_are_shown_at_the_chosen_rate():
    rising = pd.Series({str(epoch): 0.5 for epoch in range(21)})
    names = ["global model", *(f"epoch {e}" for e in (1, 3, 5, 10, 15))]
    assert list(distribution_shift.selection(rising, True)) == names
    two = pd.Series(
        {"0": 0.5} | {f"lr{rate}_epoch{e}": rate + e for rate in (0.1, 1.0) for e in range(1, 8)}
    )
    assert distribution_shift.selection(two, True)["epoch 5"] == "lr1.0_epoch5"
    # The least of them is at the other rate; that the global model has less still does not count.
    assert distribution_shift.selection(two, False)["epoch 5"] == "lr0.1_epoch5"
    labels = distribution_shift.selection(pd.Series({"0": 1, "c0.5": 2}), True)
    assert list(labels) == ["global model", "c0.5"]


def test_collapse_is_of_the_cluster_that_is_largest_in_the_end(tmp_path):
    shares = np.array([[0.5, 0.5], [0.75, 0.25], [0.75, 0.25], [0.0, 1.0]])
    # Cluster 1 has 2 of 4 rounds, too; the largest of each round would be 50, 75, 75, 100.
    assert list(clusters.largest_share(shares)) == [50.0, 25.0, 25.0, 100.0]
    # Of 20 rounds the last two count together, so that one odd round decides nothing.
    shares = np.array([[0.6, 0.4]] * 19 + [[0.45, 0.55]])
    assert list(clusters.largest_share(shares)) == [60.0] * 19 + [45.0]
    for seed, share in ((0, 1.0), (1, 0.5)):
        rows = [
            {"round": number, "cluster_1_share": share, "cluster_2_share": 1 - share}
            for number in (1, 2)
        ]
        tables = {"rounds": rows}
        written.run(tmp_path, f"s{seed}", "hypcluster", CLIENTS, seed=seed, tables=tables)
    curve = clusters.collapse(compare(tmp_path))
    check(curve, round=[1, 2], share=[75, 75], below=[25, 25], above=[25, 25])
    (row,) = numbers("collapse", tmp_path)
    assert row == {"algorithm": "HypCluster", "round": 2, "in the largest cluster (%)": 75.0}


def _summary(numbers):
    return [
        {"round": number, "split": split, "personalized_mean": mean, "bytes_down_total": down,
         "bytes_up_total": up}
        for number, mean, down, up in numbers
        for split in ("valid", "test")
    ]  # fmt: skip


def test_communication_adds_both_ways(tmp_path):
    for seed, mean in ((0, 0.5), (1, 1.0)):
        points = [(5, 0.25, 300, 100), (10, mean, 600, 200), (15 + seed, 9.0, 900, 200)]
        tables = {"summary": _summary(points)}
        written.run(tmp_path, f"s{seed}", "ditto", CLIENTS, seed=seed, tables=tables)
    # Rounds 15 and 16 are not of all seeds.
    check(communication.data(compare(tmp_path)), bytes=[400.0, 800.0], mean=[0.25, 0.75])
    (row,) = numbers("communication", tmp_path)
    assert row == {"algorithm": "Ditto", "mean": 0.75, "sent in all (bytes)": 800.0}
    # One evaluation is no curve.
    tables = {"summary": _summary([(10, 0.5, 300, 100)])}
    written.run(tmp_path / "other", "one", "ditto", CLIENTS, tables=tables)
    assert communication.data(compare(tmp_path / "other")).empty
    units = [communication.unit(largest) for largest in (999.0, 1e6, 3e13)]
    assert units == [(1.0, "bytes"), (1e6, "MB"), (1e12, "TB")]


def test_composition(tmp_path):
    names = ("split", "cluster_id", "group", "num_clients")
    values = (
        ("test", 1, "en", 4),
        ("test", 2, "es", 3),
        ("test", 1, "es", 1),
        ("valid", 1, "en", 9),
    )
    rows = [dict(zip(names, row, strict=True)) for row in values]
    # Of three clusters nobody chose the last.
    options = {"tables": {"clusters": rows}, "flags": {"num_clusters": 3}}
    written.run(tmp_path, "one", "hypcluster", CLIENTS, **options)
    comparison = compare(tmp_path)
    (ax,) = clusters.draw_composition(clusters.composition(comparison), comparison, {}).axes
    bars = [
        (bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height()) for bar in ax.patches
    ]
    assert bars == pytest.approx([(1, 0, 4), (2, 0, 0), (1, 4, 1), (2, 0, 3)])
    assert list(ax.get_xticks()) == [1, 2, 3]
    assert numbers("composition", tmp_path) == [
        {"algorithm": "HypCluster", "clients": 8, "largest cluster": 5}
    ]


def test_sizes(tmp_path):
    names = ("split", "personalization_fraction", "personalized_mean", "pct_clients_hurt")
    values = (("test", 1.0, 0.75, 5.0), ("test", 0.25, 0.5, 20.0))
    rows = [dict(zip(names, row, strict=True)) for row in values]
    tuned(tmp_path, sizes=rows)
    curve = candidate_curves.sizes(compare(tmp_path))
    check(curve, mean=[0.5, 0.75], pct=[20, 5], **{candidate_curves.SIZE: [25, 100]})


def test_acceptance(tmp_path):
    rows = [
        {"split": "test", "rule": rule, "num_clients": 4, "num_accepted": accepted,
         "personalized_mean": mean, "pct_clients_hurt": 25.0, "pct_truly_hurt": truly}
        for rule, accepted, mean, truly in (("validated", 1, 0.75, 1.0), ("always", 4, 0.5, None))
    ]  # fmt: skip
    tuned(tmp_path, acceptance=rows)
    validated, always = acceptance.data(compare(tmp_path)).to_dict("records")
    assert (always["rule"], always["mean"], always["accepting (%)"]) == ("always", 0.5, 100.0)
    assert (validated["mean"], validated["accepting (%)"]) == (0.75, 25.0)
    assert validated["truly hurt (%)"] == 1 and np.isnan(always["truly hurt (%)"])


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
    mean, gains = (NAN, [[3.0], [3.0]]) if value is None else (2.0, [[3.0, -1.0], [3.0, 0.0]])
    assert data["gains"][0].tolist() == gains
    (row,) = numbers("tuning", tmp_path)
    assert row == pytest.approx({
        "algorithm": "FedAvg + FT", "before": 3.0, "global": mean, "per_client": 1.5,
        "hurt, global (%)": 50.0, "hurt, per_client (%)": 0.0,
    }, nan_ok=True)  # fmt: skip
    tuning.draw(data, comparison, {})


def test_no_tuning_where_both_ways_choose_the_same(tmp_path):
    more = {
        f"candidate_{way}": dict.fromkeys(CLIENTS, "personal") for way in ("global", "per_client")
    }
    more |= {f"personalized_{way}": dict.fromkeys(CLIENTS, 0.5) for way in ("global", "per_client")}
    written.run(tmp_path, "one", "ditto", CLIENTS, more=more)
    assert tuning.data(compare(tmp_path)).empty


def test_quantum_of_improvement_joins_runs_by_seed_and_client(tmp_path):
    local = {"c": (0.0, 0.5), "b": (0.0, 0.25), "a": (0.0, 1.0), "other": (0.0, 0.0)}
    for seed in (1, 2):
        written.run(tmp_path, f"alone{seed}", "local", local, number=0, seed=seed)
    written.run(tmp_path / "alone", "ft", "fedavg+finetuning", CLIENTS, seed=1)
    assert improvement.data(compare(tmp_path / "alone")).empty, "without local training"
    # Clusters have no FedAvg model of their own: it is that of the fine-tuning run of the seed.
    clients = {"a": (0.0, 0.5), "b": (0.0, 1.0), "c": (0.0, 1.0)}
    written.run(tmp_path, "hc", "hypcluster", clients, seed=1)
    written.run(tmp_path, "hc2", "hypcluster", clients, seed=2)
    # a: 0.75 - max(0.5, 1), b: 0.5 - max(0.5, 0.25), c: 0.75 - max(1, 0.5).
    check(improvement.data(compare(tmp_path)), F=[-0.25, 0.0, -0.25, -0.5, 0.5, 0.0])
    _, clustered = numbers("improvement", tmp_path)
    assert clustered["clients"] == 3 and clustered["F > 0 (%)"] == pytest.approx(100 / 3)


def test_what_goes_with_being_hurt(tmp_path):
    clients = {f"c{i:02d}": (0.5, 0.5) for i in range(12)}
    # The third with most examples, and group y, are more probably hurt by hand: 0.7 against 0.1.
    chances = [0.0, 0.2, 0.0, 0.2, 0.3, 0.3, 0.3, 0.3, 0.6, 0.8, 0.6, 0.8]
    more = {
        "probability_hurt": dict(zip(clients, chances, strict=True)),
        "group": {c: "y" if i >= 8 else "x" for i, c in enumerate(clients)},
    }
    written.run(tmp_path, "ft", "fedavg+finetuning", clients, more=more)
    largest, *groups = causes.data(compare(tmp_path)).to_dict("records")
    assert largest["clients with"] == "most personalization examples"
    difference = largest["more probably hurt (points)"]
    # Variances are 0.04 / 3 of each third, of four clients; of equal ones there are 6 degrees.
    half = 100 * 2.4469 * np.sqrt(2 * 0.04 / 3 / 4)
    assert (difference, largest["to"]) == pytest.approx((60, 60 + half), abs=1e-2)
    assert largest["evidence"] == "yes" and len(groups) == 2
    assert groups[1]["clients with"] == "group y"
    assert groups[1]["more probably hurt (points)"] == pytest.approx(50)
    assert causes.draw(causes.data(compare(tmp_path)), None, style.styles(["FedAvg + FT"]))


def test_no_evidence_and_no_probabilities(tmp_path):
    clients = {f"c{i:02d}": (0.5, 0.5) for i in range(12)}
    same = {"probability_hurt": dict.fromkeys(clients, 0.1)}
    written.run(tmp_path / "a", "ft", "fedavg+finetuning", clients, more=same)
    (row,) = causes.data(compare(tmp_path / "a")).to_dict("records")
    assert (row["more probably hurt (points)"], row["evidence"]) == (0, "no evidence")
    written.run(tmp_path / "b", "ft", "fedavg+finetuning", clients)
    assert causes.data(compare(tmp_path / "b")).empty


def test_labels_unlike_the_others_and_being_hurt(tmp_path):
    clients = {f"c{i:02d}": (0.5, 0.5) for i in range(12)}
    # Eight clients have a label of each class; the last four one class only, and are hurt.
    labels = {c: [1, 0] if i < 8 else [i % 2] * 2 for i, c in enumerate(clients)}
    chances = {"probability_hurt": {c: 0.1 if i < 8 else 0.9 for i, c in enumerate(clients)}}
    keys = {"split": "test", "baseline_score": 0.0, "personalized_score": 0.0}
    scores = [
        keys | {"client_id": client, "class": name, "label": int((label == 1) == (name == "one"))}
        for client, own in labels.items() for label in own for name in ("one", "other")
    ]  # fmt: skip
    written.run(
        tmp_path, "ft", "fedavg+finetuning", clients, more=chances, tables={"scores": scores}
    )
    rows = {r.pop("clients with"): r for r in causes.data(compare(tmp_path)).to_dict("records")}
    unlike = rows["labels least like all clients'"]
    assert unlike["more probably hurt (points)"] == pytest.approx(80) and unlike["to"] > 70
    (run,) = compare(tmp_path).series[0].runs
    assert causes._label_distances(run).tolist() == [0.0] * 8 + [0.5] * 4
    section = explorer.section([compare(tmp_path)])
    assert "least like all clients" in section.body
