"""What is compared: the registry of methods and their grids."""

import pytest

from launch.compare import methods
from launch.sweeps import grids
from motley_tff import algorithms
from motley_tff.core.errors import UserError

SETTINGS = methods.BOTH


def names(setting, **more):
    return [m.name for m in methods.chosen(None, setting, more.get("is_deep", True))]


def test_what_is_compared_unless_it_is_said():
    devices = ["local", "fedavg", "finetuning", "finetuning_last_layer", "knn_per", "hypcluster"]
    assert names("cross_device") == devices
    assert names("cross_silo") == [*devices, "ditto"]
    # The last layer of a linear model is all of it.
    assert "finetuning_last_layer" not in names("cross_silo", is_deep=False)
    assert not methods.is_deep("table", None) and methods.is_deep("table", "mlp")
    assert not methods.is_deep("school", None) and methods.is_deep("emnist", None)


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_algorithm_of_the_registry_can_be_compared(setting):
    dataset = {"cross_silo": "school", "cross_device": "emnist"}[setting]
    for name in methods.names():
        try:
            method = methods.find(name, setting)
        except UserError as error:
            assert error.finding == name and "leave it out" in error.advice
            (other,) = {*SETTINGS} - {setting}
            assert methods.find(name, other).settings == (other,)
            continue
        assert method.name == name and setting in method.settings
        # Which its trainer takes: `checked` parses each value.
        for level in methods.LEVELS:
            grid = methods.grid_of(method, dataset, 20, {}, level)
            assert 1 <= grid.num_points <= 9 and grid.trainer == method.trainer
            assert (grid.num_points == 1) == (level == "one" or not method.rates)
        known = algorithms.offered_by(method.trainer)
        assert grid.fixed.get("algorithm", "hypcluster") in known or name == "local"


def test_rates_surround_the_published_ones():
    school = methods.grid_of(methods.find("ditto", "cross_silo"), "school", 100, {})
    # ditto.school.flags: client 0.001, personal 0.01, lambda 1.
    assert school.grid == {
        "client_learning_rate": ("0.0003", "0.001", "0.003"),
        "personal_learning_rate": ("0.003", "0.01", "0.03"),
    }
    assert school.fixed["lambda"] == "1" and school.fixed["server_learning_rate"] == "10"
    # 3 stands between 1 and 10; a published list is tried as it is.
    vehicle = methods.grid_of(methods.find("finetuning", "cross_silo"), "vehicle", 100, {})
    assert vehicle.grid == {"client_learning_rate": ("0.01", "0.03", "0.1")}
    assert vehicle.inside == {"finetune_learning_rate": ("0.003", "0.01", "0.03", "0.1", "0.3")}
    assert "finetune_every" not in vehicle.fixed and vehicle.fixed["total_rounds"] == "100"
    # A warm start of 100 of 1,500 rounds is one of 10 of 150.
    emnist = methods.grid_of(methods.find("hypcluster", "cross_device"), "emnist", 150, {})
    assert emnist.fixed["num_warmstart_fedavg_rounds"] == "10"
    assert methods.published_rounds("emnist") == 1500
    assert methods.published_cohort("emnist") == 50 and methods.published_cohort("school") is None


def test_other_data_get_three_decades_and_the_same_rounds():
    fixed = {"setting": "cross_silo"}
    for method in methods.chosen(None, "cross_silo", False):
        grid = methods.grid_of(method, "table", 30, fixed)
        rates = {**grid.grid, **grid.inside}
        assert ("0.01", "0.1", "1") in rates.values()
        assert grid.fixed["total_rounds"] == "30" and grid.fixed["setting"] == "cross_silo"
    local = methods.grid_of(methods.find("local", "cross_device"), "table", 30, {})
    assert local.fixed["total_rounds"] == "0" and local.num_points == 1


def test_what_a_user_fixes_is_not_searched():
    method = methods.find("ditto", "cross_silo")
    fixed = {"client_learning_rate": "0.2", "lambda": "3", "train_batch_size": "7"}
    grid = methods.grid_of(method, "table", 30, fixed)
    assert grid.grid == {} and fixed.items() <= grid.fixed.items()
    # Flags of other trainers are not its.
    assert methods.fixed_of(method, {"lambda": "3", "num_clusters": "2"}) == {"lambda": "3"}
    # Nor are those of other algorithms of its trainer.
    others = {"mocha_outer": "2", "max_clients": "9", "total_rounds": "3"}
    assert methods.fixed_of(method, others) == {"max_clients": "9", "total_rounds": "3"}
    with pytest.raises(UserError, match="found x, expected a number"):
        methods.grid_of(method, "table", 30, {"lambda": "x"})


def test_wrong_names_are_one_line():
    with pytest.raises(UserError) as error:
        methods.find("dito", "cross_silo")
    assert "did you mean ditto?" in error.value.line(with_flags=True)
    with pytest.raises(UserError) as error:
        methods.find("ditto", "cross_device")
    assert error.value.line(with_flags=True) == (
        "--algorithms=ditto: expected what runs on devices; leave it out, or give "
        "--setting=cross_silo, where the data can be silos"
    )
    with pytest.raises(UserError, match="'scaffold', expected what runs on devices"):
        methods.find("scaffold", "cross_device")
    assert methods.find("scaffold", "cross_silo").trainer == "finetuning_trainer"


def test_one_baseline_is_trained_by_the_method_that_tunes_it():
    fedavg, tuned = (methods.find(n, "cross_device") for n in ("fedavg", "finetuning"))
    assert fedavg.baseline_of == tuned.name and tuned.personalizes_fedavg
    own = methods.grid_of(fedavg, "table", 30, {})
    assert own.fixed["finetune_max_epochs"] == "0" and isinstance(own, grids.Grid)
