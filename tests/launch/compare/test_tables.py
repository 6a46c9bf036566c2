"""Tables and sentences of comparisons, from made-up outcomes."""

import math

import numpy as np
import pytest
from scipy import stats

from launch.compare import collecting, methods, tables
from launch.compare.collecting import Outcome
from motley_tff.files import csv_files
from motley_tff.metrics import hurt
from motley_tff.metrics.client_values import ClientValues
from motley_tff.tables import columns

SEEDS = (100, 1100, 2100)
NAN, INF = math.nan, math.inf


def outcome(name, values, higher=True, baseline=None, setting="cross_device", **more):
    """An outcome of `{client: value}`, under each seed, or of `{(seed, client): value}`."""
    if values and isinstance(next(iter(values)), str):
        values = {(seed, client): v for seed in SEEDS for client, v in values.items()}
    by_seed = {}
    for seed in dict.fromkeys(seed for seed, _ in values):
        ids = [client for s, client in values if s == seed]
        own = np.array([values[seed, client] for client in ids])
        before = own if baseline is None else np.array([baseline[client] for client in ids])
        by_seed[seed] = ClientValues(np.array(ids), before, own, higher, None)
    method = methods.find(name, setting)
    return Outcome(method, "accuracy", higher, 3, by_seed=by_seed, values=values, **more)


def owners(gain, spread=0.0, count=20, seed=0):
    rng = np.random.default_rng(seed)
    return {f"c{i}": 0.5 + gain + spread * rng.normal() for i in range(count)}


def compared(*outcomes):
    return tables.compare(outcomes, SEEDS)


def test_differences_are_those_of_scipy_with_holms_correction():
    values = {
        name: owners(gain, 0.1, seed=i)
        for i, (name, gain) in enumerate(
            [("local", 0.0), ("fedavg", 0.1), ("finetuning", 0.15), ("knn_per", 0.12)]
        )
    }
    rows = tables.pair_rows(compared(*(outcome(n, v) for n, v in values.items())))
    # Four methods beside two references: fine-tuning and local training are one test, not two.
    assert [(row["method"], row["reference"]) for row in rows] == [
        ("local", "finetuning"), ("fedavg", "finetuning"), ("knn_per", "finetuning"),
        ("fedavg", "local"), ("finetuning", "local"), ("knn_per", "local"),
    ]  # fmt: skip
    p_values = {}
    for row in rows:
        own, other = ([*values[row[n]].values()] for n in ("method", "reference"))
        theirs = stats.ttest_rel(own, other)
        assert row["p"] == pytest.approx(theirs.pvalue)
        assert row["difference"] == pytest.approx(np.mean(own) - np.mean(other))
        assert (row["num_clients"], row["degrees_of_freedom"], row["sides"]) == (20, 19, 2)
        assert (row["num_tests"], row["num_seeds"], row["seeds_degrees_of_freedom"]) == (5, 3, 2)
        p_values[frozenset((row["method"], row["reference"]))] = theirs.pvalue
    ranked = sorted(p_values, key=p_values.get)
    largest = 0.0
    for rank, pair in enumerate(ranked):
        largest = max(largest, min(1.0, (5 - rank) * p_values[pair]))
        for row in rows:
            if {row["method"], row["reference"]} == pair:
                assert row["p_holm"] == pytest.approx(largest)


def test_means_and_spread_by_hand():
    values = {(100, "x"): 0.2, (100, "y"): 0.4, (1100, "x"): 0.4, (1100, "y"): 0.8}
    (row,) = tables.method_rows(tables.compare([outcome("fedavg", values)], (100, 1100)))
    assert row["mean"] == pytest.approx(0.45)  # Of 0.3 and 0.6, which differ by 0.15 from it.
    assert row["std_over_clients"] == pytest.approx(0.15)
    assert row["std_over_seeds"] == pytest.approx(0.15)  # Of 0.3 and 0.6, too.
    assert (row["num_clients"], row["num_left_out"], row["num_seeds"]) == (2, 0, 2)


def test_rows_are_those_of_the_documented_tables(tmp_path):
    comparison = compared(outcome("fedavg", owners(0)), outcome("finetuning", owners(0.1)))
    costs = [{"method": "fedavg", "num_runs": 1, "num_failed": 0, "seconds": None}]
    paths = tables.write(tmp_path, comparison, costs)
    for path in paths:
        rows = list(csv_files.read(path))
        assert rows and tuple(rows[0]) == columns.names(path.stem)


def test_hurt_is_against_the_tuned_model_or_against_fedavg():
    shared = {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5}
    fedavg = outcome("fedavg", shared)
    # Tuned from another model than FedAvg's chosen one: one of four is worse than that.
    tuned = outcome("finetuning", {"a": 0.6, "b": 0.4, "c": 0.9, "d": 0.4},
                    baseline={"a": 0.1, "b": 0.6, "c": 0.1, "d": 0.4})  # fmt: skip
    alone = outcome("local", {"a": 0.4, "b": 0.4, "c": INF, "d": NAN})
    by_name = {row["method"]: row for row in tables.method_rows(compared(fedavg, tuned, alone))}
    assert (by_name["finetuning"]["pct_clients_hurt"], by_name["finetuning"]["hurt_against"]) == (
        25.0, "baseline",
    )  # fmt: skip
    # A model that diverged is worse than one that did not; so is one without a value beside it.
    assert by_name["local"]["pct_clients_hurt"] == 100.0
    assert by_name["local"]["hurt_against"] == "fedavg"
    assert math.isnan(by_name["fedavg"]["pct_clients_hurt"])
    none = tables.method_rows(compared(tuned, alone))
    assert math.isnan(none[1]["pct_clients_hurt"]) and none[1]["hurt_against"] == ""


def test_truly_hurt_is_the_mean_of_the_runs_own():
    rng = np.random.default_rng(0)
    ids = np.array([f"c{i}" for i in range(30)])
    by_seed = {}
    for seed in SEEDS:
        gained, lost = rng.integers(0, 4, 30), rng.integers(0, 8, 30)
        before = np.full(30, 0.5)
        values = ClientValues(ids, before, before + (gained - lost) / 40, True, np.full(30, 40),
                              delta_se=np.full(30, 0.05), num_gained=gained.astype(float),
                              num_lost=lost.astype(float))  # fmt: skip
        by_seed[seed] = hurt.with_margin(values)
    method = methods.find("finetuning", "cross_device")
    tuned = Outcome(method, "accuracy", True, 1, by_seed=by_seed, values={(100, "c0"): 0.5})
    result = collecting.hurt(tuned, None)
    assert result.percent_truly == pytest.approx(
        np.mean([hurt.pct_truly_hurt(values) for values in by_seed.values()])
    )
    assert 0.0 < result.percent_truly < result.percent


def test_who_has_no_value_is_named_and_counted():
    values = owners(0.1, 0.05, 8)
    with_holes = {(seed, client): v for seed in SEEDS for client, v in values.items()}
    with_holes[100, "c3"], with_holes[1100, "c3"], with_holes[100, "c5"] = -INF, -INF, NAN
    del with_holes[2100, "c6"]
    comparison = compared(
        outcome("fedavg", owners(0, 0.05, 8, 1)), outcome("finetuning", with_holes)
    )
    text = tables.closing_text(comparison, "", {})
    assert "1 client without a value (diverged under a seed): c3; " in text
    assert "(unscored under a seed): c5; " in text and "(not tested under a seed): c6; " in text
    _, row = tables.method_rows(comparison)
    assert (row["num_clients"], row["num_without_value"], row["num_left_out"]) == (8, 3, 0)
    assert all(math.isfinite(row["p"]) for row in tables.pair_rows(comparison))
    # A client without a value under every seed is in no test.
    del with_holes[2100, "c3"]
    comparison = compared(
        outcome("fedavg", owners(0, 0.05, 8, 1)), outcome("finetuning", with_holes)
    )
    assert tables.method_rows(comparison)[0]["num_left_out"] == 1
    assert tables.pair_rows(comparison)[0]["num_clients"] == 7


def test_a_method_without_values_leaves_the_others_theirs():
    failed = Outcome(methods.find("hypcluster", "cross_device"), "", False, 3, reason="diverged")
    comparison = compared(
        outcome("fedavg", owners(0, 0.1)), outcome("finetuning", owners(0.1)), failed
    )
    assert tables.method_rows(comparison)[2]["reason"] == "diverged"
    assert "HypCluster: diverged" in tables.closing_text(comparison, "", {})
    assert tables.pair_rows(comparison)[0]["num_clients"] == 20
    assert tables.closing_text(compared(failed), "", {}) == (
        "no method has a value\nHypCluster: diverged"
    )
    apart = outcome("fedavg", {"a": 0.5, "b": NAN}), outcome("finetuning", {"a": INF, "b": 0.5})
    text = tables.closing_text(compared(*apart), "", {})
    assert text.startswith("no test client has a value of every method\nFedAvg: 1 client without")


@pytest.mark.parametrize(
    "gains, sentence",
    [
        (
            {"fedavg": 0.0, "finetuning": 0.2, "local": 0.0},
            "On these 20 clients personalization by fine-tuning helps by 0.2 (",
        ),
        (
            {"fedavg": 0.2, "finetuning": 0.0, "local": 0.0},
            "On these 20 clients personalization by fine-tuning hurts by 0.2 (",
        ),
        (
            {"fedavg": 0.0, "finetuning": 0.2, "local": 0.4, "knn_per": 0.3},
            "; local training beats it by 0.2 (",
        ),
    ],
)
def test_sentences(gains, sentence):
    outcomes = [outcome(n, owners(g, 0.02, seed=i)) for i, (n, g) in enumerate(gains.items())]
    text = tables.sentence(compared(*outcomes))
    assert sentence in text and text.endswith(".") and "nan" not in text
    if "local" in gains and gains["local"] < gains["finetuning"]:
        assert text.endswith("; no method beats it beyond noise.")


def test_sentences_where_nothing_is_sure():
    noise = [outcome(n, owners(0, 0.2, seed=i)) for i, n in enumerate(("fedavg", "finetuning"))]
    text = tables.sentence(compared(*noise))
    assert "fine-tuning makes no difference beyond noise (" in text and ";" not in text
    same = [outcome(n, owners(0, 0.2)) for n in ("fedavg", "finetuning")]
    assert "fine-tuning changes nothing." in tables.sentence(compared(*same))
    assert "identical" in tables.closing_text(compared(*same), "", {})
    one = [outcome(n, owners(g, count=1)) for n, g in (("fedavg", 0.0), ("finetuning", 0.1))]
    text = tables.sentence(compared(*one))
    assert text == (
        "On this 1 client personalization by fine-tuning changes the value by 0.1, which is too "
        "few to tell from noise."
    )
    # What is ahead by less than its noise beats nothing.
    ahead = compared(*noise, outcome("local", owners(0.26, 0.5, seed=3)))
    assert ahead.pair("local", "finetuning").by_client.difference > 0.05
    assert tables.sentence(ahead).endswith("; no method beats it beyond noise.")
    # Without fine-tuning and local training the first one is the reference.
    others = [outcome(n, owners(g, 0.02)) for n, g in (("fedprox", 0.0), ("knn_per", 0.1))]
    assert "FedAvg + kNN-Per beats FedProx + fine-tuning by 0.1" in tables.sentence(
        compared(*others)
    )
    assert "no method beats FedAvg + kNN-Per beyond noise" in tables.sentence(
        compared(*reversed(others))
    )
    assert tables.sentence(compared(others[0])) == (
        "On these 20 clients nothing is compared with FedProx + fine-tuning."
    )


def test_errors_are_better_when_lower():
    outcomes = [
        outcome("fedavg", owners(0.2), False),
        outcome("finetuning", owners(0.0, 0.02), False),
    ]
    assert "helps by 0.2 (" in tables.sentence(compared(*outcomes))
    assert "lower is better" in tables.closing_text(compared(*outcomes), "", {})


def test_no_order_of_methods_or_clients_changes_a_number():
    outcomes = [
        outcome(n, owners(0.1 * i, 0.1, seed=i))
        for i, n in enumerate(("local", "fedavg", "finetuning", "knn_per"))
    ]
    first = {(r["method"], r["reference"]): r for r in tables.pair_rows(compared(*outcomes))}
    backwards = [
        outcome(o.method.name, dict(reversed(o.values.items()))) for o in reversed(outcomes)
    ]
    for row in tables.pair_rows(compared(*backwards)):
        assert row == first[row["method"], row["reference"]]
