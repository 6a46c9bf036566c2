"""fedjax: its algorithms' `init` and `apply`."""

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import problem
from cells import cell, main
from fedjax.algorithms import apfl, fed_avg, fed_prox, hyp_cluster

SGD = fedjax.optimizers.sgd(problem.RATE)
ONE = fedjax.optimizers.sgd(1.0)
SHUFFLED = fedjax.ShuffleRepeatBatchHParams(batch_size=problem.BATCH, num_epochs=1, seed=1)
PADDED = fedjax.PaddedBatchHParams(batch_size=problem.BATCH)


def errors(params, batch, rng=None):
    return (params["w"][0] * batch["x"] - batch["y"]) ** 2


def gradient(params, batch, rng):
    return jax.grad(lambda p: jnp.mean(errors(p, batch)))(params)


def clients(silos=(0, 1, 2), labels=problem.Y, sizes=problem.SIZES):
    rngs = jax.random.split(jax.random.PRNGKey(0), 3)
    return [
        (
            str(i),
            fedjax.ClientDataset(
                {
                    "x": np.full(sizes[i], problem.X[i], np.float32),
                    "y": np.full(sizes[i], labels[i], np.float32),
                }
            ),
            rngs[i],
        )
        for i in silos
    ]


def start(w=problem.W0):
    return {"w": jnp.array([w])}


def run(algorithm, look=None, chosen=((0, 1, 2),) * problem.ROUNDS, initial=None, **of_data):
    state, seen = algorithm.init(initial or start()), []
    for silos in chosen:
        state, _ = algorithm.apply(state, clients(silos, **of_data))
        seen.append(look(state) if look else state.params["w"])
    return seen


def fedavg(client=SGD, server=ONE):
    return fed_avg.federated_averaging(gradient, client, server, SHUFFLED)


@cell("fedavg", weighted_by="examples")
def _():
    return run(fedavg())


@cell("fedavg_absent", weighted_by="examples")
def _():
    return run(fedavg(), chosen=([0, 1, 2], [0, 1], [0, 1, 2]))


@cell("diverged_client", weighted_by="examples")
def _():
    return run(fedavg(), labels=(*problem.Y[:2], float("nan")))


@cell("last_batch", weighted_by="examples")
def _():
    return run(fedavg(), sizes=problem.LAST_OF_ONE)


@cell("client_momentum", weighted_by="examples")
def _():
    return run(fedavg(fedjax.optimizers.sgd(problem.RATE, problem.MOMENTUM)))


@cell("fedprox", weighted_by="examples")
def _():
    return run(fed_prox.fed_prox(errors, SGD, ONE, SHUFFLED, problem.MU))


_BETAS = {"b1": problem.BETA_1, "b2": problem.BETA_2, "eps": problem.TAU}


@cell("fedadam", weighted_by="examples")
def _():
    return run(fedavg(server=fedjax.optimizers.adam(problem.SERVER_RATE, **_BETAS)))


@cell("fedyogi", weighted_by="examples")
def _():
    return run(fedavg(server=fedjax.optimizers.yogi(problem.SERVER_RATE, **_BETAS)))


@cell("fedadagrad", weighted_by="examples")
def _():
    server = fedjax.optimizers.adagrad(problem.SERVER_RATE, eps=problem.TAU)
    return run(fedavg(server=server))


@cell("fedavgm", weighted_by="examples")
def _():
    return run(fedavg(server=fedjax.optimizers.sgd(1.0, problem.MOMENTUM)))


@cell("apfl.adaptive", weighted_by="examples")
def _():
    def look(state):
        states = [state.client_states[str(i)] for i in range(3)]
        own = [s.params["w"] for s in states]
        return [*own, *(s.interpolation_coefficients["w"] for s in states)]

    algorithm = apfl.adaptive_personalized_federated_learning(
        gradient, SGD, ONE, SHUFFLED, problem.ALPHA
    )
    return run(algorithm, look)


@cell("ifca", weighted_by="examples")
def _():
    algorithm = hyp_cluster.hyp_cluster(errors, SGD, ONE, PADDED, SHUFFLED)
    look = lambda state: [p["w"] for p in state.cluster_params]
    return run(algorithm, look, initial=[start(w) for w in problem.CENTRES])


def _evaluated(x, y, batch, metric):
    model = fedjax.Model(
        init=None,
        apply_for_train=None,
        apply_for_eval=lambda params, batch: batch["x"],
        train_loss=None,
        eval_metrics={"value": metric},
    )
    dataset = fedjax.ClientDataset({"x": np.asarray(x, np.float32), "y": np.asarray(y)})
    return [fedjax.evaluate_model(model, {}, dataset.padded_batch(batch_size=batch))["value"]]


@cell("loss", "its evaluate_average_loss")
def _():
    dataset = fedjax.ClientDataset({"x": np.asarray(problem.ERRORS, np.float32)})
    batches = dataset.padded_batch(batch_size=problem.BATCH)
    loss = lambda params, batch, rng: batch["x"]
    key = jax.random.PRNGKey(0)
    return [fedjax.evaluate_average_loss({}, batches, key, loss)]


@cell("ties", "its evaluate_model")
def _():
    return _evaluated(np.zeros((4, 3)), [0, 1, 2, 0], 4, fedjax.metrics.Accuracy())


@cell("diverged", "its evaluate_model")
def _():
    return _evaluated(np.full((4, 3), np.nan), [0, 1, 2, 0], 4, fedjax.metrics.Accuracy())


main()
