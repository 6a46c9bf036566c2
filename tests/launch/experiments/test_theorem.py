"""Theorem 1 as it is: the gap's identity, the barycenter, and where the printed equation holds."""

import numpy as np
import pytest
import scipy.linalg

from launch.experiments.generative import theorem
from motley_tff.metrics.generative import frechet


def _random(rng, width=5, rank=None):
    root = rng.normal(size=(width, rank or width))
    return frechet.Gaussian(rng.normal(size=width), root)


def _clients(rng, number=4, **kwargs):
    shares = rng.dirichlet(np.ones(number))
    return [theorem.ClientMoments(float(share), _random(rng, **kwargs)) for share in shares]


def test_the_barycenter_solves_its_equation_and_nothing_is_nearer():
    rng = np.random.default_rng(2)
    clients = _clients(rng)
    middle = theorem.barycenter(clients)
    s = middle.root @ middle.root.T
    half = scipy.linalg.sqrtm(s)
    covariances = [client.root @ client.root.T for _, client in clients]
    shares = [share for share, _ in clients]
    inner = sum(
        w * scipy.linalg.sqrtm(half @ c @ half) for w, c in zip(shares, covariances, strict=True)
    )
    np.testing.assert_allclose(inner, s, rtol=1e-8, atol=1e-8)
    least = theorem.average(clients, middle)
    for _ in range(20):
        other = frechet.Gaussian(
            middle.mean + 0.05 * rng.normal(size=5), middle.root + 0.05 * rng.normal(size=(5, 5))
        )
        assert theorem.average(clients, other) > least


def test_the_printed_equation_holds_where_all_commute():
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(5, 5)))[0]

    def commuting():
        return frechet.Gaussian(rng.normal(size=5), axes * rng.uniform(0.1, 3, 5))

    clients = [theorem.ClientMoments(share, commuting()) for share in (0.2, 0.3, 0.5)]
    middle = theorem.barycenter(clients)
    # Where all commute, its deviations are the mean of the clients'.
    deviations = sum(s * np.linalg.norm(client.root, axis=0) for s, client in clients)
    expected = np.sort(deviations**2)
    np.testing.assert_allclose(
        np.sort(np.linalg.eigvalsh(middle.root @ middle.root.T)), expected, rtol=1e-9
    )
    constant = theorem.average(clients, middle)
    for _ in range(5):
        model = commuting()
        whole = frechet.distance(middle, model) + constant
        assert theorem.average(clients, model) == pytest.approx(whole, rel=1e-9)
