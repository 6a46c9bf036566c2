"""PersFL: who teaches, what a student minimizes, and where it is local training, bit for bit."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from motley_tff.algorithms import FineTuning, PersFL, optimizers
from motley_tff.backends import vectorized
from motley_tff.core import clients, functional_model
from tests import toy
from tests.errors import refused

pytestmark = pytest.mark.usefixtures("eagerly")

_RATE = optimizers.OptimizerConfig("sgd", 0.1)
_PERSFL = PersFL(
    train_batch_size=4, student_epochs=2, distillation_weights=(0.0, 0.5), temperatures=(2.0,)
)
_LOCAL = FineTuning(_RATE, (0.1,), 2, 4)


@pytest.fixture(scope="module")
def silos():
    return toy.without_keras(toy.classifier_silos((4, 9)))


@pytest.fixture(scope="module")
def weights(silos):
    """The first weights, and others that were trained."""
    first = silos.model.initial_weights(1)
    return first, tuple(w + np.float32(0.3) for w in first)


def _curves(task, personalization, weights, states=None, backend=None):
    work = personalization.work(("test",), "train")
    by_client = toy.evaluate(task, work, weights, None, states, backend)
    return np.array([metrics["curves"]["test"]["loss"] for metrics in by_client.values()])


def _students(task, params, first, now, teacher, backend=None):
    """Returns the curves of silos that began with `first` and have this teacher now."""
    states = [PersFL().build(task, teacher).initial_client_state(0)] * len(task.train)
    built = params.build(task, first)
    return _curves(task, params.personalization(task, built), now, states, backend)


def test_the_teacher_is_the_model_of_least_validation_loss_of_the_silos_own_rounds():
    """Loss 0.5 * (w - x)^2 of one number each, by hand."""
    task = toy.scalar_task({"near": [1.0], "far": [9.0]}, setting="cross_silo")
    start = (np.array([[4.0]], np.float32),)
    built = PersFL(_RATE, train_batch_size=1).build(task, start)
    run = toy.train(task, built, [("near", "far"), ("far",), ("near", "far")])
    # From 4 the near one moves by .1 * 3, the far one by -.1 * 5: 4.1; then far alone: 4.59.
    teachers = {"near": [4.0, 4.0, 4.0], "far": [4.0, 4.1, 4.59]}  # 4.59 is no better for near.
    for i, states in enumerate(map(run.process.client_states, run.states)):
        for name, number in (("near", 1.0), ("far", 9.0)):
            (weight,), loss = states[name]
            assert weight.item() == pytest.approx(teachers[name][i])
            assert float(loss) == pytest.approx(0.5 * (teachers[name][i] - number) ** 2)


def test_of_weight_zero_is_local_training_bit_for_bit(silos, weights):
    first, trained = weights
    students = _students(silos, _PERSFL, first, trained, trained)
    alone = _curves(silos, _LOCAL.build(silos), first)
    np.testing.assert_array_equal(students[:, 1:3], alone[:, 1:])
    assert np.all(students[:, 3:] != alone[:, 1:])
    global_model = _curves(silos, _LOCAL.build(silos), trained)
    np.testing.assert_array_equal(students[:, 0], global_model[:, 0])


@pytest.mark.slow
def test_students_are_the_same_where_silos_are_stacked(silos, weights):
    first, trained = weights
    expected = _students(silos, _PERSFL, first, trained, trained)
    tf.config.run_functions_eagerly(False)  # Stacks are faster compiled.
    curves = _students(silos, _PERSFL, first, trained, trained, vectorized.VectorizedBackend())
    np.testing.assert_allclose(curves, expected, rtol=1e-5)


class _Bias(tf.keras.layers.Dense):
    """Two logits, the same for every example."""

    last_layer = property(lambda self: (self,))

    def __init__(self):
        super().__init__(2, use_bias=False, kernel_initializer="zeros")

    def call(self, x, training=False, key=None):
        return super().call(tf.ones_like(x))


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
def test_one_step_of_a_student_by_hand(kind, expected, silos):
    part = {"x": np.zeros([1, 1], np.float32), "y": np.ones(1, np.int32)}
    source = clients.InMemoryClients({"a": dict.fromkeys(("train", "valid", "test"), part)})
    task = dataclasses.replace(
        silos, train=source, valid=source, test=source,
        model=functional_model.from_keras(_Bias, np.zeros([1, 1], np.float32)),
    )  # fmt: skip
    params = PersFL(
        optimizers.OptimizerConfig("sgd", 1.0), distillation=kind, distillation_weights=(0.25,),
        temperatures=(2.0,), student_epochs=1,
    )  # fmt: skip
    zeros = task.model.initial_weights(0)
    teacher = (np.log([[9.0, 1.0]]).astype(np.float32),)
    (curve,) = _students(task, params, zeros, zeros, teacher)
    # After a step against it the logits are (-g, g).
    assert curve[1] == pytest.approx(np.log1p(np.exp(-2 * expected)), rel=1e-5)
    assert curve[0] == pytest.approx(np.log(10.0), rel=1e-5)


def test_a_student_can_start_from_its_teacher(silos, weights):
    first, trained = weights
    params = dataclasses.replace(_PERSFL, student="teacher", teacher="last")
    students = _students(silos, params, first, trained, first)
    np.testing.assert_array_equal(students[:, :3], _curves(silos, _LOCAL.build(silos), trained))


def test_needs_classes():
    task = toy.scalar_task({"a": [1.0]}, setting="cross_silo")
    built = PersFL().build(task, task.model.initial_weights(0))
    with refused("algorithm", "persfl", "classes"):
        PersFL().personalization(task, built)
