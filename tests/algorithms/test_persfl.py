"""PersFL: who teaches, what a student minimizes, and where it is local training, bit for bit."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import FineTuning, PersFL, ProximalFineTuning, optimizers
from motley_tff.backends import base, sequential, vectorized
from motley_tff.core import random_streams
from motley_tff.core.errors import UserError
from tests import toy

_RATE = optimizers.OptimizerConfig("sgd", 0.1)
_PERSFL = PersFL(
    train_batch_size=4, student_epochs=3, distillation_weights=(0.0, 0.5), temperatures=(2.0,)
)
_BACKENDS = {
    "sequential": sequential.SequentialBackend,
    "vectorized": vectorized.VectorizedBackend,
}


@pytest.fixture(scope="module")
def silos():
    return toy.classifier_silos()


def _taught_by(task, weights):
    """Returns the silos' states, a list in their order, with these weights as every teacher."""
    first = PersFL().build(task, weights).initial_client_state(0)
    return [first] * len(task.train)


def _curves(backend, task, personalization, weights, states=None):
    work = personalization.work(("valid", "test"), "train")
    key = random_streams.key(3, "personalization", 1)
    call = base.ClientCall(task, work, weights, task.test, task.test.ids, key, states)
    return [metrics["curves"]["test"]["loss"] for _, metrics in backend.map_clients(call)]


def test_the_teacher_is_the_model_of_least_validation_loss_of_the_silos_own_rounds():
    """Loss 0.5 * (w - x)^2 of one number each, by hand."""
    task = toy.scalar_task({"near": [1.0], "far": [9.0]}, setting="cross_silo")
    start = (np.array([[4.0]], np.float32),)
    built = PersFL(_RATE, train_batch_size=1).build(task, start)
    process = sequential.SequentialBackend().training(task, built)
    plan = [
        base.Round(n, cohort, random_streams.key(0, "local_training", n))
        for n, cohort in enumerate([("near", "far"), ("far",), ("near", "far")], 1)
    ]
    after = []
    process.run(
        process.initialize(), plan, lambda _, state: after.append(process.client_states(state))
    )
    # From 4 the near one moves by .1 * 3, the far one by -.1 * 5: 4.1; then far alone: 4.59.
    seen = [
        {i: (teacher.weights[0].item(), float(teacher.loss)) for i, teacher in states.items()}
        for states in after
    ]
    assert seen[0]["near"] == pytest.approx((4.0, 4.5))
    assert seen[1]["near"] == pytest.approx((4.0, 4.5))  # Absent.
    assert seen[2]["near"] == pytest.approx((4.0, 4.5))  # 4.59 is no better.
    assert seen[1]["far"] == pytest.approx((4.1, 0.5 * 4.9**2))
    assert seen[2]["far"] == pytest.approx((4.59, 0.5 * 4.41**2))


@pytest.mark.parametrize("name", _BACKENDS)
def test_of_weight_zero_is_local_training_bit_for_bit(name, silos):
    backend, weights = _BACKENDS[name](), silos.model.initial_weights(1)
    trained = tuple(w + np.float32(0.3) for w in weights)
    built = _PERSFL.build(silos, weights)
    states = _taught_by(silos, trained)
    students = _curves(backend, silos, _PERSFL.personalization(silos, built), trained, states)
    local = FineTuning(_RATE, (0.1,), 3, 4).build(silos)
    alone = _curves(backend, silos, local, weights)
    global_model = _curves(backend, silos, local, trained)
    for student, own, teacher in zip(students, alone, global_model, strict=True):
        np.testing.assert_array_equal(student[1:4], own[1:])
        np.testing.assert_array_equal(student[0], teacher[0])
        assert np.all(student[4:] != own[1:])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Of logits s = 0, t = (log 9, 0) at T = 2: soft labels 3/4 and 1/4; the label is 1.
        # Generalized: gradient (1 - w) (1/2, -1/2) + w (1/2 - 3/4, 1/2 - 1/4), w = .25.
        ("generalized", (0.75 * 0.5 - 0.25 * 0.25)),
        # Knowledge: of s / T the gradient has 1 / T, and the term T^2.
        ("knowledge", (0.75 * 0.5 - 0.25 * 0.25 * 2)),
    ],
)
def test_one_step_of_a_student_by_hand(kind, expected):
    class Bias(tf.keras.Model):
        """Two logits, the same for every example."""

        def __init__(self):
            super().__init__()
            self.layer = tf.keras.layers.Dense(2, use_bias=False, kernel_initializer="zeros")

        @property
        def last_layer(self):
            return (self.layer,)

        def call(self, x, training=False, key=None):
            return self.layer(tf.ones([tf.shape(x)[0], 1]))

    from motley_tff.core import clients, functional_model

    part = {"x": np.zeros([1, 4], np.float32), "y": np.ones(1, np.int32)}
    source = clients.InMemoryClients({"a": dict.fromkeys(("train", "valid", "test"), part)})
    task = dataclasses.replace(
        toy.classifier_silos(), train=source, valid=source, test=source,
        model=functional_model.from_keras(Bias, np.zeros([1, 4], np.float32)),
    )  # fmt: skip
    params = PersFL(
        optimizers.OptimizerConfig("sgd", 1.0), distillation=kind, distillation_weights=(0.25,),
        temperatures=(2.0,), student_epochs=1,
    )  # fmt: skip
    zeros = task.model.initial_weights(0)
    built = params.build(task, zeros)
    teacher = (np.log([[9.0, 1.0]]).astype(np.float32),)
    states = _taught_by(task, teacher)
    (curve,) = _curves(
        sequential.SequentialBackend(), task, params.personalization(task, built), zeros, states
    )
    # After a step against it the logits are (-g, g).
    assert curve[1] == pytest.approx(np.log1p(np.exp(-2 * expected)), rel=1e-5)
    assert curve[0] == pytest.approx(np.log(10.0), rel=1e-5)


def test_a_student_can_start_from_its_teacher(silos):
    weights = silos.model.initial_weights(1)
    trained = tuple(w + np.float32(0.3) for w in weights)
    params = dataclasses.replace(_PERSFL, student="teacher", teacher="last")
    built, backend = params.build(silos, weights), sequential.SequentialBackend()
    states = _taught_by(silos, weights)
    students = _curves(backend, silos, params.personalization(silos, built), trained, states)
    tuned = _curves(backend, silos, FineTuning(_RATE, (0.1,), 3, 4).build(silos), trained)
    for student, expected in zip(students, tuned, strict=True):
        np.testing.assert_array_equal(student[:4], expected)


def test_needs_classes():
    task = toy.scalar_task({"a": [1.0]}, setting="cross_silo")
    built = PersFL().build(task, task.model.initial_weights(0))
    with pytest.raises(UserError, match="persfl distils the probabilities of classes; toy's model"):
        PersFL().personalization(task, built)


@pytest.mark.parametrize("name", _BACKENDS)
def test_proximal_strength_zero_is_fine_tuning_bit_for_bit(name, silos):
    backend, weights = _BACKENDS[name](), silos.model.initial_weights(1)
    plain = _curves(backend, silos, FineTuning(_RATE, (0.1,), 3, 4).build(silos), weights)
    none, some = (
        _curves(backend, silos, ProximalFineTuning(_RATE, (0.1,), 3, 4, strength=s).build(silos),
                weights)
        for s in (0.0, 2.0)
    )  # fmt: skip
    np.testing.assert_array_equal(none, plain)
    assert not np.array_equal(some, plain)


def test_the_pull_by_hand():
    """w = 0, x = 1, rate .1, strength 2: w = .1, then .1 + .1 * (.9 - 2 * .1) = .17."""
    task = toy.scalar_task({"a": [1.0]}, setting="cross_silo")
    tuned = ProximalFineTuning(_RATE, (0.1,), 2, 1, strength=2.0).build(task)
    (curve,) = _curves(sequential.SequentialBackend(), task, tuned, task.model.initial_weights(0))
    np.testing.assert_allclose(curve, [0.5, 0.5 * 0.9**2, 0.5 * 0.83**2], rtol=1e-5)
