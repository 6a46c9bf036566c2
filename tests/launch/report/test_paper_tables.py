"""Tables 4 to 7 from two seeds of few clients."""

from launch.report import building, comparisons, paper_tables, runs
from launch.report.comparisons import Value
from tests.launch.report import written


def _tables(path):
    compared = comparisons.compare(runs.find([str(path)]))
    return {t.number: t for t in paper_tables.tables(compared)}, compared


def _tuned(tmp_path, **options):
    # Seed 0: before .5 ± .25, after .75 ± 0; seed 1: before .5 ± 0, after .5 ± .25, one hurt.
    first = {"a": (0.25, 0.75), "b": (0.75, 0.75)}
    second = {"a": (0.5, 0.25), "b": (0.5, 0.75)}
    for seed, clients in enumerate((first, second)):
        flags = {"finetune_last_layer": False}
        split = {"valid": clients} if options.get("silo") else {}
        dataset = options.get("dataset", "toy")
        written.run(
            tmp_path, f"{dataset}{seed}", "fedavg+finetuning", clients, seed=seed, flags=flags,
            dataset=dataset, **split,
        )  # fmt: skip


def test_cross_device(tmp_path):
    _tuned(tmp_path)
    tables, compared = _tables(tmp_path)
    assert list(tables) == [4, 6]
    name = "FedAvg + Fine-tuning (FT)"
    assert tables[4].header == ["Algorithm", "Metrics", "toy (accuracy)"]
    assert tables[4].cells == [
        [name, "Per-client metric before FT", "0.500 ± .12"],
        [name, "Per-client metric after FT", "0.625 ± .12"],
        [name, '% clients "hurt" after FT', "25.0%"],
        [name, "FT all layers vs last layer", "All layers"],
    ]
    assert tables[6].cells == [
        [name, "Per-client metric before FT: mean", "0.500 ± .000"],
        [name, "Per-client metric before FT: std", "0.12 ± .125"],
        [name, "Per-client metric after FT: mean", "0.625 ± .125"],
        [name, "Per-client metric after FT: std", "0.12 ± .125"],
        [name, '% clients "hurt" after FT', "25.0% ± 25.0%"],
        [name, "FT all layers vs last layer", "All layers"],
    ]
    before, after, hurt = paper_tables.rows(compared[0])
    assert (before["mean"], before["std_over_clients"], before["num_seeds"]) == (0.5, 0.125, 2)
    assert (after["mean"], after["mean_std_over_seeds"]) == (0.625, 0.125)
    assert after["std_over_clients_std_over_seeds"] == 0.125
    assert (hurt["mean"], hurt["std_over_clients"]) == (25.0, None)


def test_a_run_that_was_repeated_is_no_second_seed(tmp_path):
    _tuned(tmp_path)
    clients = {"a": (0.25, 0.75), "b": (0.75, 0.75)}
    flags = {"finetune_last_layer": False}
    written.run(tmp_path, "again", "fedavg+finetuning", clients, seed=0, flags=flags)
    _, compared = _tables(tmp_path)
    rows = list(paper_tables.rows(compared[0]))
    assert [row["num_seeds"] for row in rows] == [2, 2, 2]
    # Means of 0.75 twice (one seed) and 0.5: 0.625, not 2/3.
    assert (rows[1]["mean"], rows[1]["mean_std_over_seeds"]) == (0.625, 0.125)
    section = building.section_of_tables(compared)
    assert "FedAvg + FT 2 in 3 runs, those of a seed averaged" in section.body


def test_silos_have_tables_of_their_own(tmp_path):
    _tuned(tmp_path, dataset="device")
    _tuned(tmp_path, dataset="silo", silo=True)
    tables, _ = _tables(tmp_path)
    assert sorted(tables) == [4, 5, 6, 7]
    assert tables[5].header[2:] == ["silo (accuracy)"]
    assert tables[5].cells[0][2] == "0.5000 ± .1250"
    assert tables[7].cells[3][2] == "0.1250 ± .1250"


def test_clusters_and_their_ensemble(tmp_path):
    clients = {"a": (0.5, 0.5), "b": (0.5, 1.0), "c": (0.5, 1.0), "d": (0.5, 0.5)}
    more = {"cluster_id": {"v0": 1, "v1": 1, "a": 1, "b": 2, "c": 2, "d": 2}}
    flags = {"num_clusters": 2, "num_warmstart_fedavg_rounds": 8}
    written.run(tmp_path, "hc", "hypcluster", clients, more=more, flags=flags)
    written.run(tmp_path, "ens", "hypcluster", clients, more=more, flags=flags, number=0)
    tables, _ = _tables(tmp_path)
    assert [row[1:] for row in tables[4].cells] == [
        ["Per-client metric", "0.750 ± .25"],
        ["No. tuned clusters (k)", "2"],
        ["% clients largest cluster", "75.0%"],
        ["Warmstart from FedAvg", "Yes"],
        ["Per-client metric by ensembling k FedAvg models", "0.750 ± .25"],
    ]
    assert {row[0] for row in tables[4].cells} == {"HypCluster / IFCA"}
    # With one seed there is no deviation over seeds.
    assert tables[6].cells[0][2] == "0.750"


def test_an_algorithm_that_one_data_set_lacks_and_one_that_diverged(tmp_path):
    written.run(tmp_path, "one", "ditto", {"a": (0.5, None)}, dataset="x")
    written.run(tmp_path, "two", "mocha", {"a": (0.5, 0.5)}, dataset="y")
    tables, _ = _tables(tmp_path)
    cells = {(row[0], row[1]): row[2:] for row in tables[4].cells}
    assert cells["MTL (Ditto)", "Per-client metric"] == ["–", "–"]
    assert cells["MTL (Ditto)", '% clients "hurt"'] == ["100.0%", "–"]
    assert cells["MTL (Mocha)", "Per-client metric"] == ["–", "0.500 ± .00"]


def test_a_deviation_of_one_or_more_has_its_figure_before_the_point():
    assert paper_tables.over_seeds(Value(12.0, 3.25), 1, 1) == "12.0 ± 3.2"
