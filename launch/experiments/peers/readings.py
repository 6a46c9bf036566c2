"""What each cell's numbers are under each way to read an algorithm, in NumPy.

`READINGS[cell][reading]` are numbers: the model after each of three rounds. The first reading of a
cell is the paper's, which the function's docstring cites; evaluations have no paper.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from launch.experiments.peers import problem
from launch.experiments.peers.problem import (
    ALPHA,
    BETA_1,
    BETA_2,
    BY_STEPS,
    EXAMPLES,
    LAMBDA,
    MOMENTUM,
    MU,
    RATE,
    ROUNDS,
    SERVER_RATE,
    SIZES,
    STEPS,
    TAU,
    UNIFORM,
    W0,
)

SILOS = range(3)
Weights = Sequence[float]


def gradient(silo: int, w: float) -> float:
    """Of the mean squared error of one weight."""
    x, y = problem.X[silo], problem.Y[silo]
    return 2 * x * (w * x - y)


def trained(silo: int, w: float, pull: float = 0.0, towards: float = 0.0, steps: int = 0) -> float:
    """One epoch of SGD, with `pull * (w - towards)` added to the gradient."""
    for _ in range(steps or STEPS[silo]):
        w -= RATE * (gradient(silo, w) + pull * (w - towards))
    return w


def mean(values: Iterable[float], weights: Weights) -> float:
    """The weighted mean; weights are normalized."""
    return float(np.average(list(values), weights=weights))


def trajectory(step: Callable[[float], float], w: float = W0) -> list[float]:
    """The weight after each round."""
    seen = []
    for _ in range(ROUNDS):
        w = step(w)
        seen.append(w)
    return seen


def fedavg(weights: Weights = EXAMPLES) -> list[float]:
    """McMahan et al. 2017, Algorithm 1."""
    return trajectory(lambda w: mean((trained(i, w) for i in SILOS), weights))


def fedavg_absent(weights: Weights = EXAMPLES, share: float = 1.0) -> list[float]:
    """One silo is away in round two; `share` of the change is taken then."""
    rounds = iter(range(ROUNDS))

    def step(w: float) -> float:
        away = problem.ABSENT if next(rounds) == 1 else -1
        here = [i for i in SILOS if i != away]
        new = mean((trained(i, w) for i in here), [weights[i] for i in here])
        return w + (share if away >= 0 else 1) * (new - w)

    return trajectory(step)


def fedprox(weights: Weights = EXAMPLES, mu: float = MU, to_zero: bool = False) -> list[float]:
    """Li et al. 2020: the loss plus mu/2 |w - w_global|^2."""
    return trajectory(
        lambda w: mean((trained(i, w, mu, 0.0 if to_zero else w) for i in SILOS), weights)
    )


def fedsgd(weights: Weights = EXAMPLES) -> list[float]:
    """One step on the mean gradient over whole silos."""
    return trajectory(lambda w: w - RATE * mean((gradient(i, w) for i in SILOS), weights))


def momentum(weights: Weights = EXAMPLES, is_kept: bool = False) -> list[float]:
    """FedAvg whose clients have m = .9 m + g, new in every round or kept."""
    moments = [0.0, 0.0, 0.0]

    def local(i: int, w: float) -> float:
        moments[i] *= is_kept
        for _ in range(STEPS[i]):
            moments[i] = MOMENTUM * moments[i] + gradient(i, w)
            w -= RATE * moments[i]
        return w

    return trajectory(lambda w: mean((local(i, w) for i in SILOS), weights))


def server(
    kind: str,
    weights: Weights = EXAMPLES,
    initial: float = TAU**2,
    twice: bool = False,
    corrected: str = "",
    inside: bool = False,
    first: float = 0.0,
) -> list[float]:
    """Reddi et al. 2021, Algorithm 2, with v_0 = `initial`, m_0 = `first`.

    `corrected`: Adam's bias correction of "both" moments, or of the "step", or that of the next
    round ("early"). `twice`: the rate acts on the change, too. `inside`: tau under the root.
    """
    m, v, t = first, initial, 0

    def step(w: float) -> float:
        nonlocal m, v, t
        t += 1
        delta = mean((trained(i, w) for i in SILOS), weights) - w
        delta *= SERVER_RATE if twice else 1
        m = BETA_1 * m + (1 - BETA_1) * delta
        if kind == "adagrad":
            v += delta**2
        elif kind == "adam":
            v = BETA_2 * v + (1 - BETA_2) * delta**2
        elif kind == "decaying yogi":
            v = BETA_2 * v + (1 - BETA_2) * delta**2 * np.sign(delta**2 - v)
        else:
            v -= (1 - BETA_2) * delta**2 * np.sign(v - delta**2)
        moment = m / (1 - BETA_1**t) if corrected else m
        if corrected == "early":
            moment = m / (1 - BETA_1 ** (t + 1)) * np.sqrt(1 - BETA_2 ** (t + 1))
        if corrected == "step":  # tau is not corrected.
            moment *= np.sqrt(1 - BETA_2**t)
        second = v / (1 - BETA_2**t) if corrected == "both" else v
        root = np.sqrt(second + TAU) if inside else np.sqrt(second) + TAU
        return float(w + SERVER_RATE * moment / root)

    return trajectory(step)


def adagrad(
    initial: float = TAU**2, weights: Weights = EXAMPLES, inside: bool = False
) -> list[float]:
    """Adagrad without a first moment."""
    v = initial

    def step(w: float) -> float:
        nonlocal v
        delta = mean((trained(i, w) for i in SILOS), weights) - w
        v += delta**2
        root = np.sqrt(v + TAU) if inside else np.sqrt(v) + TAU
        return float(w + SERVER_RATE * delta / root)

    return trajectory(step)


def fedavgm(
    weights: Weights = EXAMPLES, damping: float = 1.0, nesterov: bool = False, lost: bool = False
) -> list[float]:
    """Hsu et al. 2019: v = .9 v + damping * change; w + v. `lost`: not in round one."""
    v, rounds = 0.0, iter(range(ROUNDS))

    def step(w: float) -> float:
        nonlocal v
        delta = mean((trained(i, w) for i in SILOS), weights) - w
        v = 0.0 if next(rounds) == 0 and lost else MOMENTUM * v + damping * delta
        return w + (delta + MOMENTUM * v if nesterov else v)

    return trajectory(step)


def scaffold(
    weights: Weights = UNIFORM, option: int = 2, of_server: Weights = UNIFORM
) -> list[float]:
    """Karimireddy et al. 2020, Algorithm 1, with server rate 1."""
    c, local_c = 0.0, [0.0, 0.0, 0.0]

    def step(w: float) -> float:
        nonlocal c
        new, new_c = [], []
        for i in SILOS:
            y = w
            for _ in range(STEPS[i]):
                y -= RATE * (gradient(i, y) - local_c[i] + c)
            new.append(y)
            second = local_c[i] - c + (w - y) / (STEPS[i] * RATE)
            new_c.append(gradient(i, w) if option == 1 else second)
        c += mean((a - b for a, b in zip(new_c, local_c, strict=True)), of_server)
        local_c[:] = new_c
        return mean(new, weights)

    return trajectory(step)


def scaffold_flipped(option: int = 2, weights: Weights = UNIFORM) -> list[float]:
    """Variates are the opposite of gradients, and used as if they were gradients."""
    c, local_c = 0.0, [0.0, 0.0, 0.0]

    def step(w: float) -> float:
        nonlocal c
        new, new_c = [], []
        for i in SILOS:
            y = w
            for _ in range(STEPS[i]):
                y -= RATE * (gradient(i, y) - local_c[i] + c)
            new.append(y)
            second = local_c[i] - c + (y - w) / (STEPS[i] * RATE)
            new_c.append(-gradient(i, w) if option == 1 else second)
        c += mean((a - b for a, b in zip(new_c, local_c, strict=True)), UNIFORM)
        local_c[:] = new_c
        return mean(new, weights)

    return trajectory(step)


def scaffold_shared_buffer() -> list[float]:
    """Option I with the other sign; a silo's variate is in a buffer that its next gradient is
    written to: from round two on it is the newest gradient, and adds nothing to the server's.
    """
    c, is_first = 0.0, True

    def step(w: float) -> float:
        nonlocal c, is_first
        new = []
        for i in SILOS:
            y, variate = w, 0.0 if is_first else -gradient(i, w)
            for _ in range(STEPS[i]):
                y -= RATE * (gradient(i, y) - variate + c)
            new.append(y)
        if is_first:
            c = -mean((gradient(i, w) for i in SILOS), UNIFORM)
        is_first = False
        return mean(new, UNIFORM)

    return trajectory(step)


def scaffold_without_server(weights: Weights = UNIFORM) -> list[float]:
    """The server's variate stays 0."""
    variates = [0.0] * 3

    def step(w: float) -> float:
        new = []
        for i in SILOS:
            y = w
            for _ in range(STEPS[i]):
                y -= RATE * (gradient(i, y) - variates[i])
            variates[i] += (w - y) / (STEPS[i] * RATE)
            new.append(y)
        return mean(new, weights)

    return trajectory(step)


def fednova(weights: Weights = EXAMPLES, effective: Weights | None = None) -> list[float]:
    """Wang et al. 2020, equation 4: normalized changes times the mean number of steps."""
    p = weights if effective is None else effective

    def step(w: float) -> float:
        tau = sum(a * k for a, k in zip(p, STEPS, strict=True))
        return w + tau * mean(((trained(i, w) - w) / STEPS[i] for i in SILOS), weights)

    return trajectory(step)


def feddyn(alpha: float = ALPHA) -> list[float]:
    """Acar et al. 2021, Algorithm 1, the inner problem by an epoch of SGD."""
    h, duals = 0.0, [0.0, 0.0, 0.0]

    def step(w: float) -> float:
        nonlocal h
        new = []
        for i in SILOS:
            y = w
            for _ in range(STEPS[i]):
                y -= RATE * (gradient(i, y) - duals[i] + alpha * (y - w))
            duals[i] -= alpha * (y - w)
            new.append(y)
        h -= alpha * sum(y - w for y in new) / 3
        return mean(new, UNIFORM) - h / alpha

    return trajectory(step)


def ditto(pull: float = LAMBDA, follows: bool = False, weights: Weights = EXAMPLES) -> list[float]:
    """Li et al. 2021, Algorithm 1: the own model is pulled to the one that the round began with.

    `follows`: to the silo's own trained copy of the global model instead.
    """
    own, seen = [W0] * 3, [0.0] * 0

    def step(w: float) -> float:
        new = [trained(i, w) for i in SILOS]
        own[:] = [trained(i, own[i], pull, new[i] if follows else w) for i in SILOS]
        seen.extend(own)
        return mean(new, weights)

    trajectory(step)
    return seen


def apfl(
    alpha: float = ALPHA,
    after: bool = False,
    weights: Weights = EXAMPLES,
    mixed: bool = True,
    frozen: bool = False,
) -> list[float]:
    """Deng et al. 2020, Algorithm 1: mixtures alpha v + (1 - alpha) w after each round.

    `after`: the global step comes before the mixture's gradient. `mixed`: mixtures, else v.
    `frozen`: v never moves.
    """
    own, seen = [W0] * 3, [0.0] * 0

    def step(w: float) -> float:
        new = []
        for i in SILOS:
            y, v = w, own[i]
            for _ in range(STEPS[i]):
                next_y = y - RATE * gradient(i, y)
                mixture = alpha * v + (1 - alpha) * (next_y if after else y)
                v -= 0 if frozen else RATE * alpha * gradient(i, mixture)
                y = next_y
            own[i] = v
            new.append(y)
        seen.extend(
            alpha * v + (1 - alpha) * y if mixed else v for v, y in zip(own, new, strict=True)
        )
        return mean(new, weights)

    trajectory(step)
    return seen


def apfl_adaptive(times_alpha: bool) -> list[float]:
    """(v, alpha) of each silo; alpha moves by <v - w, gradient of the mixture> at every step."""
    own, alphas, seen = [W0] * 3, [ALPHA] * 3, [0.0] * 0

    def step(w: float) -> float:
        new = []
        for i in SILOS:
            y, v, a = w, own[i], alphas[i]
            for _ in range(STEPS[i]):
                slope = gradient(i, a * v + (1 - a) * y)
                next_v = v - RATE * slope * (a if times_alpha else 1)
                a, y, v = a - RATE * (v - y) * slope, y - RATE * gradient(i, y), next_v
                a = min(max(a, 0.0), 1.0)
            own[i], alphas[i] = v, a
            new.append(y)
        seen.extend([*own, *alphas])
        return mean(new, EXAMPLES)

    trajectory(step)
    return seen


def apfl_merged(weights: Weights = EXAMPLES) -> list[float]:
    """The own model is replaced by the mixture and takes no gradient."""
    own, seen = [W0] * 3, [0.0] * 0

    def step(w: float) -> float:
        new = [trained(i, w) for i in SILOS]
        own[:] = [ALPHA * v + (1 - ALPHA) * y for v, y in zip(own, new, strict=True)]
        seen.extend(own)
        return mean(new, weights)

    trajectory(step)
    return seen


def pfedme(
    weights: Weights = EXAMPLES, personal: bool = False, restarts: bool = False
) -> list[float]:
    """Dinh et al. 2020, Algorithm 1, beta 1: theta's steps, then w_i -= eta lambda (w_i - theta).

    `restarts`: theta begins a round at the global model.
    """
    thetas, seen = [W0] * 3, [0.0] * 0

    def step(w: float) -> float:
        new = []
        for i in SILOS:
            copy = w
            theta = w if restarts else thetas[i]
            for _ in range(STEPS[i]):
                for _ in range(problem.PFEDME_STEPS):
                    theta -= RATE * (gradient(i, theta) + LAMBDA * (theta - copy))
                copy -= RATE * LAMBDA * (copy - theta)
            thetas[i] = theta
            new.append(copy)
        seen.extend(thetas)
        return mean(new, weights)

    of_server = trajectory(step)
    return seen if personal else of_server


def pfedme_without(weights: Weights = EXAMPLES) -> list[float]:
    """FedAvg of `PFEDME_STEPS` steps a batch."""
    steps = [k * problem.PFEDME_STEPS for k in STEPS]
    return trajectory(lambda w: mean((trained(i, w, steps=steps[i]) for i in SILOS), weights))


def fednova_of_models(weights: Weights = EXAMPLES) -> list[float]:
    """Models, not changes, are weighed by p_i tau / a_i, which do not add up to 1."""
    tau = sum(p * k for p, k in zip(weights, STEPS, strict=True))
    shares = [p * tau / k for p, k in zip(weights, STEPS, strict=True)]
    return trajectory(lambda w: sum(s * trained(i, w) for i, s in zip(SILOS, shares, strict=True)))


def feddyn_flipped(weights: Weights = EXAMPLES) -> list[float]:
    """Corrections have the other sign; alpha_i = alpha mean(n) / n_i is twice in the clients'."""
    alphas = [ALPHA * sum(SIZES) / 3 / n for n in SIZES]
    duals = [0.0, 0.0, 0.0]

    def step(w: float) -> float:
        new = []
        for i in SILOS:
            y = w
            for _ in range(STEPS[i]):
                y -= RATE * (gradient(i, y) + alphas[i] * (y - w + duals[i]))
            duals[i] += alphas[i] * (w - y)
            new.append(y)
        return mean(new, weights) + sum(duals) / 3

    return trajectory(step)


def carried_momentum(weights: Weights = EXAMPLES) -> list[float]:
    """Clients' momentum goes on from one client to the next."""
    moment = 0.0

    def local(i: int, w: float) -> float:
        nonlocal moment
        for _ in range(STEPS[i]):
            moment = MOMENTUM * moment + gradient(i, w)
            w -= RATE * moment
        return w

    return trajectory(lambda w: mean([local(i, w) for i in SILOS], weights))


def feddyn_of_server() -> list[float]:
    """Clients train without penalty; the server takes its model off once, not once a client."""
    h = 0.0

    def step(w: float) -> float:
        nonlocal h
        new = [trained(i, w) for i in SILOS]
        h -= ALPHA / 3 * (sum(new) - w)
        return mean(new, UNIFORM) - h / ALPHA

    return trajectory(step)


def left_out(weights: Weights = EXAMPLES) -> list[float]:
    """FedAvg without the last silo."""
    return trajectory(lambda w: mean((trained(i, w) for i in (0, 1)), weights[:2]))


def ifca(weights: Weights = EXAMPLES) -> list[float]:
    """The models after each round; silos train that of their lowest loss."""
    models, seen = list(problem.CENTRES), []
    for _ in range(ROUNDS):
        losses = [
            [(m * x - y) ** 2 for m in models] for x, y in zip(problem.X, problem.Y, strict=True)
        ]
        chosen = np.argmin(losses, axis=1)
        for j, m in enumerate(list(models)):
            here = [i for i in SILOS if chosen[i] == j]
            if here:
                models[j] = mean((trained(i, m) for i in here), [weights[i] for i in here])
        seen.extend(models)
    return seen


def last_batch(steps: int) -> list[float]:
    """FedAvg of silos with so many batches each."""
    return trajectory(lambda w: mean((trained(i, w, steps=steps) for i in SILOS), UNIFORM))


def running_means(weights: Weights) -> list[float]:
    """The server's running mean of x (momentum .1) after each round of FedAvg."""
    keeps = [0.9**k for k in STEPS]
    return trajectory(
        lambda m: mean(
            (a * m + (1 - a) * x for a, x in zip(keeps, problem.X, strict=True)), weights
        ),
        0.0,
    )


def own_running_means() -> list[float]:
    """The silos' running means, where nobody averages them."""
    return [
        x * (1 - 0.9 ** (k * t))
        for t in range(1, ROUNDS + 1)
        for x, k in zip(problem.X, STEPS, strict=True)
    ]


def per_fedavg(
    kept: bool = False, weights: Weights = UNIFORM, pairs: Weights = STEPS
) -> list[float]:
    """Fallah et al. 2020, first order: w' = w - a g(w), w = w - b g(w'), batches in pairs."""

    def local(i: int, w: float) -> float:
        for _ in range(int(pairs[i])):
            inner = w - RATE * gradient(i, w)
            w = (inner if kept else w) - RATE * gradient(i, inner)
        return w

    return trajectory(lambda w: mean((local(i, w) for i in SILOS), weights))


def product_gradient(silo: int, w: np.ndarray) -> np.ndarray:
    """Of the mean squared error of h b x; `w` is (b, h)."""
    x, y = problem.X[silo], problem.Y[silo]
    error = 2 * x * (w[0] * w[1] * x - y)
    return error * w[::-1]


def in_layers(
    shared: Sequence[bool],
    phases: Sequence[tuple[float, float]] = ((1, 1),),
    weights: Weights = EXAMPLES,
    of_server: bool = False,
    combined: bool = False,
) -> list[float]:
    """(b, h) of each silo after its training of each round; `shared` parts are averaged.

    `of_server`: (b, h) of the server instead. `combined`: of each silo after the server's mean.

    Each phase is an epoch whose gradient is multiplied by (of the base, of the last layer).
    """
    models = [np.array([problem.BASE0, problem.LAST0]) for _ in SILOS]
    seen: list[float] = []
    for _ in range(ROUNDS):
        for i in SILOS:
            for mask in phases:
                for _ in range(STEPS[i]):
                    models[i] = models[i] - RATE * np.array(mask) * product_gradient(i, models[i])
            seen.extend([] if of_server or combined else models[i].tolist())
        average = np.average(models, axis=0, weights=weights)
        models = [np.where(shared, average, model) for model in models]
        seen.extend(average.tolist() if of_server else [])
        seen.extend(np.ravel(models).tolist() if combined else [])
    return seen


def _ways(
    function: Callable[..., list[float]],
    variants: Mapping[str, Mapping[str, Any]] = {"": {}},
    paper: str = "by examples",
) -> dict[str, list[float]]:
    """Returns `{variant, weighting: numbers}`; the first weighting is the paper's."""
    weights = {"by examples": EXAMPLES, "uniform": UNIFORM, "by steps": BY_STEPS}
    order = sorted(weights, key=lambda name: name != paper)
    return {
        f"{variant}, {name}" if variant else name: function(weights=weights[name], **arguments)
        for variant, arguments in variants.items()
        for name in order
    }


def _accuracies() -> dict[str, list[float]]:
    hits, counts = np.array(problem.HITS), np.array(problem.COUNTS)
    return {
        "by examples": [hits.sum() / counts.sum()],
        "by clients": [float((hits / counts).mean())],
    }


_BASE, _BOTH = {"shared": (True, False)}, {"shared": (True, True)}
_LAST, _HEAD_FIRST = {"shared": (False, True)}, {"phases": ((0, 1), (1, 0))}
_HEAD_FROZEN = {"phases": ((1, 0),)}

READINGS: dict[str, dict[str, list[float]]] = {
    "fedavg": _ways(fedavg),
    "fedavg_absent": _ways(fedavg_absent),
    # One silo's labels are not numbers.
    "diverged_client": _ways(left_out, {"left out": {}}) | {"the model is lost": [np.nan] * 3},
    # Silos of four rows, batches of three.
    "last_batch": {"trained on": last_batch(2), "dropped": last_batch(1)},
    "client_momentum": _ways(momentum, {"": {}, "kept": {"is_kept": True}})
    | _ways(carried_momentum, {"goes on from client to client": {}}),
    "fedprox": _ways(
        fedprox,
        {
            "": {},
            "pushed away (mu with the other sign)": {"mu": -MU},
            "mu for mu/2": {"mu": 2 * MU},
            "to zero": {"to_zero": True},
            "no pull": {"mu": 0.0},
        },
    ),
    "fedsgd": _ways(fedsgd) | _ways(fedavg, {"as FedAvg": {}}),
    "fedadam": _ways(
        functools.partial(server, "adam"),
        {
            "": {},
            "v begins at 0": {"initial": 0.0},
            "rate twice": {"twice": True},
            "rate twice, v begins at 0": {"initial": 0.0, "twice": True},
            "v begins at 0, step bias-corrected": {"initial": 0.0, "corrected": "step"},
            "v begins at 0, step corrected as of the next round": {
                "initial": 0.0,
                "corrected": "early",
            },
            "v begins at 0, bias-corrected": {"initial": 0.0, "corrected": "both"},
        },
        paper="uniform",
    ),
    "fedyogi": _ways(
        functools.partial(server, "yogi"),
        {
            "": {},
            "v begins at 0": {"initial": 0.0},
            "rate twice": {"twice": True},
            "rate twice, v begins at 0": {"initial": 0.0, "twice": True},
            "v begins at 1e-6": {"initial": 1e-6},
            "v begins at 1e-6, step bias-corrected": {"initial": 1e-6, "corrected": "step"},
            "v begins at 1e-6, bias-corrected": {"initial": 1e-6, "corrected": "both"},
            "m begins at -1e-6, v at 1e-6, bias-corrected": {
                "initial": 1e-6,
                "first": -1e-6,
                "corrected": "both",
            },
        },
        paper="uniform",
    )
    | _ways(
        functools.partial(server, "decaying yogi"),
        {
            "second moment decays as Adam's, bias-corrected": {
                "initial": 0.0,
                "corrected": "both",
            },
        },
        paper="uniform",
    ),
    "fedadagrad": _ways(
        functools.partial(server, "adagrad"),
        {
            "": {},
            "v begins at 0": {"initial": 0.0},
            "rate twice": {"twice": True},
            "rate twice, v begins at 0": {"initial": 0.0, "twice": True},
        },
        paper="uniform",
    )
    | _ways(
        adagrad,
        {
            "no first moment": {},
            "v begins at 0, no first moment": {"initial": 0.0},
            "v begins at .1, no first moment": {"initial": 0.1},
            "v begins at .1, no first moment, tau under the root": {
                "initial": 0.1,
                "inside": True,
            },
        },
        paper="uniform",
    ),
    "fedavgm": _ways(
        fedavgm,
        {
            "": {},
            "first round lost": {"lost": True},
            "change times .1": {"damping": 0.1},
            "Nesterov": {"nesterov": True},
        },
    )
    | _ways(fedavg, {"no momentum": {}}),
    "scaffold": _ways(scaffold, {"": {}, "option I": {"option": 1}}, paper="uniform")
    | {f"variates have the other sign, option {o}": scaffold_flipped(o) for o in (1, 2)}
    | _ways(scaffold_without_server, {"server's variate stays 0": {}})
    | {
        "variates have the other sign, and one buffer": scaffold_shared_buffer(),
        "variates by steps, too": scaffold(BY_STEPS, of_server=BY_STEPS),
        "variates by examples, too": scaffold(EXAMPLES, of_server=EXAMPLES),
    }
    | _ways(fedavg, {"no variates": {}}),
    "fednova": _ways(fednova)
    | {"uniform, steps by examples": fednova(UNIFORM, EXAMPLES)}
    | _ways(fednova_of_models, {"models weighed": {}}),
    "feddyn": {
        "uniform": feddyn(),
        "clients without penalty, server takes its model off once": feddyn_of_server(),
    }
    | _ways(feddyn_flipped, {"signs flipped": {}})
    | _ways(fedavg, {"as FedAvg": {}}),
    "ditto.personal": _ways(
        ditto,
        {
            "": {},
            "pulled to its own copy": {"follows": True},
            "lambda twice": {"pull": 2 * LAMBDA},
        },
    ),
    "apfl.mixture": _ways(
        apfl,
        {
            "": {},
            "own model never moves": {"frozen": True},
            "after the global step": {"after": True},
        },
        paper="uniform",
    )
    | _ways(apfl_merged, {"own model becomes the mixture": {}}, paper="uniform"),
    "apfl.own": _ways(
        functools.partial(apfl, mixed=False),
        {"": {}, "after the global step": {"after": True}},
        paper="uniform",
    ),
    # Silos' own models and their shares, where the share is adapted.
    "apfl.adaptive": {
        "alpha times the gradient": apfl_adaptive(True),
        "the whole gradient": apfl_adaptive(False),
    },
    "ifca": _ways(ifca, paper="uniform"),
    "pfedme.global": _ways(pfedme, {"": {}, "theta restarts": {"restarts": True}}, paper="uniform")
    | _ways(pfedme_without, {"as FedAvg of three steps a batch": {}}, paper="uniform"),
    "pfedme.personal": _ways(
        functools.partial(pfedme, personal=True),
        {"": {}, "theta restarts": {"restarts": True}},
        paper="uniform",
    ),
    "per_fedavg": _ways(per_fedavg, {"": {}, "inner step kept": {"kept": True}}, paper="uniform"),
    "fedper": _ways(in_layers, {"": _BASE, "as FedAvg": _BOTH}),
    # With the server's newest base.
    "fedper.newest": _ways(in_layers, {"": {**_BASE, "combined": True}}),
    "fedrep": _ways(
        in_layers,
        {
            "": {**_BASE, **_HEAD_FIRST},
            "base first": {**_BASE, "phases": ((1, 0), (0, 1))},
            "as FedPer": _BASE,
        },
        paper="uniform",
    ),
    "fedrep.newest": _ways(
        in_layers, {"": {**_BASE, **_HEAD_FIRST, "combined": True}}, paper="uniform"
    ),
    "fedbabu": _ways(
        in_layers,
        {"": {**_BOTH, **_HEAD_FROZEN}, "last layer trains": _BOTH, "as FedPer": _BASE},
    ),
    "fedbabu.global": _ways(in_layers, {"": {**_BOTH, **_HEAD_FROZEN, "of_server": True}}),
    "lg_fedavg": _ways(in_layers, {"": _LAST, "as FedAvg": _BOTH}),
    "batchnorm": _ways(running_means) | {"stays 0": [0.0] * 3},
    "fedbn": {"own": own_running_means()},
    # Of clients with 1 of 4 and 6 of 8 right answers.
    "accuracy": _accuracies(),
    # Of three errors 1 and two errors 4, in batches of three.
    "loss": {"by examples": [2.2], "by batches": [2.5], "the sum of batches' means": [5.0]},
    # All classes alike, a model that is not a number; labels 0, 1, 2, 0.
    "ties": {"shares": [1 / 3], "the first class wins": [0.5], "the last class wins": [0.25]},
    "diverged": {"not scored": [np.nan], "counts as class 0": [0.5], "counts as wrong": [0.0]},
}


def dealt(values: Sequence[float]) -> str:
    """What became of 1,000 rows; from (rows dealt, distinct ones, whether a second call under the
    same seed dealt alike, whether a client's rows are out of the file's order).
    """
    rows, distinct, seeded, shuffled = values
    fate = (
        "all once"
        if rows == distinct == 1000
        else "some left out"
        if rows == distinct
        else "some twice"
    )
    order = "shuffled" if shuffled else "in file order"
    return f"{fate}, {'same' if seeded else 'other'} under a seed, {order}"


# Cells of which no paper says what is right.
WITHOUT_PAPER = (
    "diverged_client last_batch client_momentum batchnorm accuracy loss ties diverged"
).split()
# Cells that are told in words.
DESCRIBED = {"iid": dealt, "dirichlet": dealt, "shards": dealt}
