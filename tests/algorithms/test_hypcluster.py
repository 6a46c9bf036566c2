"""HypCluster by hand, on clients with one number each; its limits; its remedies."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import FedAvg, HypCluster, optimizers
from tests import toy
from tests.errors import refused

pytestmark = pytest.mark.usefixtures("eagerly")

# The model is one number w, an example's loss (x - w)^2 / 2. Clients a (two examples) and b are to
# the right of both models below, c is to their left.
CLIENTS = {"a": [2.0, 2.0], "b": [3.5], "c": [-1.0]}
RATE = 0.5


def _fedavg(server="sgd", rate=1.0, **parameters):
    sgd = optimizers.OptimizerConfig("sgd", RATE)
    return FedAvg(sgd, optimizers.OptimizerConfig(server, rate, parameters), 1, 10)


def _model(value):
    return (np.array([[value]], np.float32),)


@pytest.fixture(scope="module")
def task():
    return toy.scalar_task(CLIENTS, {"v": ([-0.5], [-1.5]), "w": ([4.0], [1.0])})


def _train(task, params, values, rounds=1, **own):
    models = [_model(v) for v in values]
    algorithm = toy.like(params, HypCluster, num_clusters=len(models), **own).build(task, models)
    run = toy.train(task, algorithm, rounds)
    models, _ = run.weights
    return models[0].ravel(), [result.means for result in run.results]


def _choices(task, weights, ids=None):
    """Returns what the evaluation says of clients that choose between two models."""
    choice = HypCluster(num_clusters=2).personalization(task, None)
    work = choice.work(("evaluation",), "personalization")
    # Beside the models the server sends each one's popularity, which only training looks at.
    broadcast = (np.array(weights, np.float32)[:, None, None],), np.array([0.0, 9.0], np.float32)
    return toy.evaluate(task, work, broadcast, ids)


def test_one_round_by_hand(task):
    models, results = _train(task, _fedavg(), [0.0, 1.0])
    # c is nearer to 0 and moves it to -0.5; a and b take 1: means 1.5 (2 examples) and 2.25.
    np.testing.assert_allclose(models, [-0.5, (2 * 1.5 + 2.25) / 3], rtol=1e-6)
    assert results[0]["cluster_1_share"] == pytest.approx(1 / 3)
    assert results[0]["cluster_2_share"] == pytest.approx(2 / 3)


def test_as_many_clusters_as_clients_at_most(task):
    HypCluster(num_clusters=3).check_clients(task)
    with refused("num_clusters", 4, "at most 3"):
        HypCluster(num_clusters=4).check_clients(task)


def test_shared_base_layers_by_hand(task):
    """The base is the first model's and moves by everybody's mean; heads by their own clients'."""
    task = toy.with_pair(task)
    models = [tuple(np.array([[v]], np.float32) for v in pair) for pair in ((0.0, 0.0), (9.0, 1.0))]
    algorithm = toy.like(_fedavg(), HypCluster, shares_base_layers=True).build(task, models)
    # What is sent: one base and two heads down, a model up; float32.
    assert algorithm.bytes_per_client == (12, 8)
    (bases, heads), _ = toy.train(task, algorithm).weights
    # Outputs are 0 and 1 (the 9 is not used). c takes the first and moves both its numbers by
    # -0.5; a and b take the second: gradients -1 and -2.5, so 0.5 (two examples) and 1.25.
    np.testing.assert_allclose(heads.ravel(), [-0.5, 1 + (2 * 0.5 + 1.25) / 3], rtol=1e-6)
    np.testing.assert_allclose(bases.ravel(), [(-0.5 + 2 * 0.5 + 1.25) / 4] * 2, rtol=1e-6)


@pytest.mark.parametrize(("models", "chosen"), [((0.0, 0.0), 0), ((np.nan, 1.0), 1)])
def test_of_equal_models_the_first_is_taken_and_none_that_is_no_number(task, models, chosen):
    after, results = _train(task, _fedavg(), models)
    assert results[0][f"cluster_{chosen + 1}_share"] == 1.0 and np.isfinite(after[chosen])


@pytest.mark.parametrize(
    ("rate", "first", "stays", "moved"),
    [
        # The client takes model 1, which moves by 1, then by 0.5 * 1 + 0.5. The second one has
        # gathered no momentum.
        (1.0, [0.0, 5.0], [2.0, 5.0], [2.0, 5.0]),
        # Model 1 overshoots to 5, so in round 2 the client takes model 2. Half of round 1's change
        # of -0.5 is left as momentum: 5 + 8 * 0.25.
        (8.0, [1.0, 4.0], [5.0, -4.0], [7.0, -4.0]),
    ],
)
def test_clusters_without_clients_by_hand(rate, first, stays, moved):
    only, params = toy.scalar_task({"a": [2.0]}), _fedavg("momentum", rate, momentum=0.5)
    for steps_empty, expected in ((False, stays), (True, moved)):
        models, _ = _train(only, params, first, rounds=2, steps_empty_clusters=steps_empty)
        np.testing.assert_allclose(models, expected, rtol=1e-6)


def test_a_model_whose_outputs_are_infinite_is_not_taken_where_its_loss_is_finite(task):
    def bounded(labels, outputs):
        losses = tf.minimum(tf.square(tf.reshape(outputs, [-1]) - labels), 0.01)
        return losses, tf.ones_like(losses)

    _, results = _train(dataclasses.replace(task, loss=bounded), _fedavg(), [np.inf, 9.0])
    assert results[0]["cluster_2_share"] == 1.0


def test_the_regularizer_counts_in_the_choice(task):
    """Of clients at -1 and -0.5 a negative model has the lower loss, but it is the longer one."""
    regularized = dataclasses.replace(task, regularizer=lambda w: 0.5 * tf.square(w[0][0, 0]))
    # c, at -1: losses 1.62 and 0.5, regularizer 0.32 and 2.
    _, plain = _train(task, _fedavg(), [0.8, -2.0])
    _, results = _train(regularized, _fedavg(), [0.8, -2.0])
    assert plain[0]["cluster_2_share"] == pytest.approx(1 / 3)
    assert results[0]["cluster_1_share"] == 1.0
    # v, at -0.5: losses 0.845 and 0.605, regularizer 0.32 and 1.28.
    for variant, cluster in ((task, 1), (regularized, 0)):
        assert _choices(variant, [0.8, -1.6], ["v"])["v"]["cluster"] == cluster


def test_balance_by_hand(task):
    # Without balance a and b take the second model, at 1.01, and c takes the first, at 1.
    _, plain = _train(task, _fedavg(rate=0.0), [1.0, 1.01], rounds=2)
    assert plain[1]["cluster_2_share"] == pytest.approx(2 / 3)
    # Examples after round 1: 1/4 and 3/4. Averaged with the 1/2 of the start they are 0.375 and
    # 0.625, twice which is 0.75 and 1.25: the penalties log(0.75) and log(1.25) outweigh the
    # difference of the losses, so that all take the first.
    _, balanced = _train(
        task, _fedavg(rate=0.0), [1.0, 1.01], rounds=2, balance=1.0, balance_rounds=1000
    )
    assert balanced[1]["cluster_1_share"] == 1.0
    _, over = _train(task, _fedavg(rate=0.0), [1.0, 1.01], rounds=2, balance=1.0, balance_rounds=1)
    assert over[1] == plain[1]


def test_balance_ends_a_collapse():
    """Clients at 1 and -1; both models begin far above, so both clients take the lower one.

    After round 1 the lower one has all shares and is at 1.5. The upper one is then favored by
    4 * 5/6 * log(3) = 3.7: more than the 3 by which it is worse for the client at 1, less than the
    7 by which it is worse for the other.
    """
    planted, first = toy.scalar_task({"a": [1.0], "b": [-1.0]}), [3.0, 3.5]
    collapsed, without = _train(planted, _fedavg(), first, rounds=4)
    assert all(result["cluster_1_share"] == 1.0 for result in without)
    np.testing.assert_allclose(collapsed, [3 / 2**4, 3.5], rtol=1e-6)
    models, balanced = _train(planted, _fedavg(), first, rounds=4, balance=4.0, balance_rounds=6)
    assert [result["cluster_1_share"] for result in balanced] == [1.0, 0.5, 0.5, 0.5]
    # Each goes half of its way in each of three rounds.
    np.testing.assert_allclose(models, [-1 + 2.5 / 2**3, 1 + 2.5 / 2**3], rtol=1e-6)


def test_the_choice_of_held_out_clients(task):
    """By the personalization part alone: v is nearer to -1, w to 3, whatever they evaluate on."""
    metrics = _choices(task, [-1.0, 3.0])
    assert (metrics["v"]["cluster"], metrics["w"]["cluster"]) == (0, 1)
    np.testing.assert_allclose(
        metrics["v"]["curves"]["evaluation"]["loss"], [0.125, 0.125], rtol=1e-6
    )
    np.testing.assert_allclose(metrics["w"]["curves"]["evaluation"]["loss"], [2.0, 2.0], rtol=1e-6)
