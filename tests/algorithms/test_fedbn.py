"""FedBN with a real BatchNormalization: Keras's numbers, and what never leaves a silo."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from datasets.models import choice, users_model
from motley_tff import interface
from motley_tff.algorithms import TRAINING, FedBn, HypCluster, OptimizerConfig, attacks
from motley_tff.backends import choice as backend_choice
from motley_tff.core import functional_model
from motley_tff.experiment import rate_probe
from motley_tff.experiment.config import BackendConfig, RunConfig
from motley_tff.files import model_files
from tests import toy
from tests.contracts import in_process, registry
from tests.errors import refused

_MODEL = """
import tensorflow as tf
L = tf.keras.layers
def build(facts):
    norm = L.BatchNormalization(momentum=0.75)
    return tf.keras.Sequential([L.Dense(5), norm, L.ReLU(), L.Dense(facts.num_outputs)])
def pictures(facts):
    norms = [L.BatchNormalization(scale=False), L.BatchNormalization(center=False)]
    layers = [L.Conv2D(3, 3), norms[0], L.ReLU(), L.Flatten(), norms[1], L.Dense(2)]
    return tf.keras.Sequential(layers)
class Twice(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = L.Dense(3), L.Dense(3), L.BatchNormalization()
    def call(self, x, training):
        return self.b(self.norm(self.a(self.norm(x, training=training)), training=training))
def shared(facts):
    return Twice()
def frozen(facts):
    return tf.keras.Sequential([L.BatchNormalization(trainable=False), L.Dense(3)])
def adapted(facts):
    return tf.keras.Sequential([L.Normalization(), L.Dense(3)])
def by_row(facts):
    return tf.keras.Sequential([L.Reshape((2, 2)), L.BatchNormalization(axis=1), L.Flatten(), L.Dense(3)])
def renorm(facts):
    return tf.keras.Sequential([L.BatchNormalization(renorm=True), L.Dense(3)])
"""  # noqa: E501
_NAME = "a_model_with_norms"
_KEY = tf.constant([1, 2])
_SIZES = (7, 9, 6)
_PARAMS = FedBn(
    OptimizerConfig("momentum", 0.1),
    OptimizerConfig("sgd", 1.0),
    train_epochs=2,
    train_batch_size=4,
)


@pytest.fixture(autouse=True, scope="module")
def _module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / f"{_NAME}.py").write_text(_MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        yield


def _model(function="build", shape=(4,), num_outputs=3):
    facts = choice.ModelFacts(num_outputs, shape)
    return users_model.build(f"{_NAME}:{function}", facts, np.zeros((1, *shape), np.float32))


@pytest.fixture(scope="module")
def silos():
    return dataclasses.replace(toy.classifier_silos(_SIZES), model=_model(), drop_remainder=False)


@pytest.mark.parametrize(
    ("function", "shape", "num_outputs"),
    [("build", (4,), 3), ("pictures", (6, 6, 1), 2), ("shared", (3,), 3)],
)
def test_three_steps_are_kerass(function, shape, num_outputs):
    model = _model(function, shape, num_outputs)
    module = __import__(_NAME)
    keras = getattr(module, function)(choice.ModelFacts(num_outputs, shape))
    x = np.random.default_rng(0).normal(2.0, 3.0, size=(3, 8, *shape)).astype(np.float32)
    keras(x[0], training=False)
    weights = [tf.constant(w) for w in model.initial_weights(3)]

    @tf.function
    def step(weights, batch):
        with functional_model.new_statistics() as moved:
            return model.predict(weights, batch, True, _KEY), moved

    # Keras lists a layer's trained ones first, and layers by attribute.
    variables = sorted(keras.variables, key=lambda v: v.name)
    by_name = dict(zip(sorted(model.names), variables, strict=True))
    for name, value in zip(model.names, weights, strict=True):
        by_name[name].assign(value)
    for batch in x:
        expected = keras(batch, training=True)
        outputs, moved = step(weights, batch)
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)
        new = iter(moved)
        pairs = zip(weights, model.is_statistic, strict=True)
        weights = [next(new) if is_statistic else w for w, is_statistic in pairs]
        for name, value in zip(model.names, weights, strict=True):
            np.testing.assert_allclose(value, by_name[name], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        model.predict(weights, x[0], False, _KEY), keras(x[0]), rtol=1e-4, atol=1e-4
    )


def _rounds_by_keras(task, weights, cohorts):
    """Returns (shared, {silo: own}) after rounds of two full batches each, by Keras's own layers
    and its momentum, which begins anew with each round.
    """
    keras = __import__(_NAME).build(choice.ModelFacts(3, (4,)))
    keras.build((None, 4))
    is_norm = np.array(task.model.is_norm)
    shared = [w for w, own in zip(weights, is_norm, strict=True) if not own]
    first = [w for w, own in zip(weights, is_norm, strict=True) if own]
    states = dict.fromkeys(task.train.ids, first)
    for cohort in cohorts:
        sent = []
        for silo in cohort:
            others, norms = iter(shared), iter(states[silo])
            keras.set_weights([next(norms if own else others) for own in is_norm])
            optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
            examples = task.train.fetch(silo)["train"]
            for _ in range(2):
                with tf.GradientTape() as tape:
                    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                        examples["y"], keras(examples["x"], training=True)
                    )
                    loss = tf.reduce_mean(losses)
                gradients = tape.gradient(loss, keras.trainable_variables)
                optimizer.apply_gradients(zip(gradients, keras.trainable_variables, strict=True))
            new = keras.get_weights()
            states[silo] = [w for w, own in zip(new, is_norm, strict=True) if own]
            sent.append([w for w, own in zip(new, is_norm, strict=True) if not own])
        sizes = [len(task.train.fetch(silo)["train"]["y"]) for silo in cohort]
        shared = [np.average(ws, axis=0, weights=sizes) for ws in zip(*sent, strict=True)]
    return shared, states


def _close(found, expected, tolerance=1e-5):
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


_COHORTS = (("t0", "t1", "t2"), ("t2", "t0"), ("t2", "t1"))


@pytest.mark.usefixtures("eagerly")
def test_rounds_are_those_of_kerass_layers(silos):
    built = dataclasses.replace(_PARAMS, train_batch_size=100).build(
        silos, weights := silos.model.initial_weights(0)
    )
    run = toy.train(silos, built, _COHORTS)
    shared, states = _rounds_by_keras(silos, weights, _COHORTS)
    _close(run.weights, shared)
    _close(run.client_states, states)


@pytest.mark.slow
def test_both_backends_agree_in_batches_of_other_sizes(silos):
    """Silo 0's last batch has three rows, silo 1's one."""
    built = _PARAMS.build(silos, silos.model.initial_weights(0))
    expected = toy.train(silos, built, _COHORTS)
    with registry.BACKENDS["tff"]() as backend:
        found = toy.train(silos, built, _COHORTS, backend)
        _close((found.weights, found.client_states), (expected.weights, expected.client_states))
        own = FedBn().personalization(silos, built).work(("test",), "train")
        states = [expected.client_states[i] for i in silos.test.ids]
        scores = [
            toy.evaluate(silos, own, expected.weights, states=states, backend=b)
            for b in (backend, None)
        ]
    curves = [{i: s["curves"] for i, s in of_backend.items()} for of_backend in scores]
    _close(*curves)


@pytest.mark.usefixtures("eagerly")
def test_norms_and_statistics_never_leave_a_silo(silos):
    weights = silos.model.initial_weights(0)
    built, updates = _PARAMS.build(silos, weights), []

    def finish(carry):
        updates.append(built.work.finish(carry))
        return updates[-1]

    spied = dataclasses.replace(built, work=dataclasses.replace(built.work, finish=finish))
    run = toy.train(silos, spied, 2)
    shared, norms = [(4, 5), (5,), (5, 3), (3,)], [(5,)] * 4
    assert [w.shape for w in weights] == [*shared[:2], *norms, *shared[2:]]
    for nest in (
        built.initial_weights,
        run.weights,
        built.communicated.up,
        built.communicated.down,
    ):
        assert [np.shape(w) for w in nest] == shared
    for output in updates:
        assert [tuple(w.shape) for w in output.update] == shared
        assert [tuple(w.shape) for w in output.client_state] == norms
    assert built.bytes_per_client == (4 * (20 + 5 + 15 + 3),) * 2
    # What a silo holds is its own: all four arrays differ between any two.
    for a, b in zip(run.client_states["t0"], run.client_states["t1"], strict=True):
        assert not np.any(a == b)


@pytest.mark.usefixtures("eagerly")
def test_a_silo_that_never_trained_has_the_baseline(silos):
    built = _PARAMS.build(silos, silos.model.initial_weights(0))
    run = toy.train(silos, built, [("t0", "t1")] * 2)
    own = FedBn().personalization(silos, built).work(("test",), "train")
    states = [run.client_states[i] for i in silos.test.ids]
    scores = toy.evaluate(silos, own, run.weights, states=states)
    losses = {i: s["curves"]["test"]["loss"] for i, s in scores.items()}
    assert losses["t2"][0] == losses["t2"][1]
    assert losses["t0"][0] != losses["t0"][1]


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_rates_are_tried_by_what_it_is_of_one_silo(silos):
    weights, alone = silos.model.initial_weights(0), [("t1",)] * 3
    own = toy.train(silos, built := _PARAMS.build(silos, weights), alone)
    tried = toy.train(silos, _PARAMS.probe().build(silos, weights), alone)
    _close(tried.weights, built.personal_model(own.weights, own.client_states["t1"]), 1e-6)
    config = RunConfig(dataclasses.replace(_PARAMS, client_optimizer=OptimizerConfig("sgd")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rate_probe, "_ROUNDS", 1)
        patch.setattr(rate_probe, "_ALONE", 1)
        chosen = rate_probe.choose(silos, config, interface.progress.Silent())
    assert chosen["client_optimizer"]["clients"] == 1


@pytest.mark.parametrize("name", [n for n in TRAINING if n not in ("fedbn", *registry.INSTALLED)])
def test_every_other_algorithm_refuses_batch_statistics(name, silos):
    task, kind, weights = silos, TRAINING[name], silos.model.initial_weights(0)
    if kind.card.is_central:
        task = dataclasses.replace(silos, train=toy.classifier_silos(_SIZES[:1]).train)
    with refused("model", None, "moving_mean", "GroupNormalization") as caught:
        kind().build(task, [weights] * 2 if kind is HypCluster else weights)
    assert "algorithm=fedbn" in str(caught.value)


def test_models_that_fedbn_refuses(silos):
    with refused("algorithm", "fedbn", "normalization layers"):
        FedBn().build(task := toy.classifier_silos(_SIZES), task.model.initial_weights(0))
    norms_alone = dataclasses.replace(silos.model, is_norm=(True,) * len(silos.model.shapes))
    task = dataclasses.replace(silos, model=norms_alone)
    with refused("algorithm", "fedbn", "others to share"):
        FedBn().build(task, task.model.initial_weights(0))
    for function, said in (
        ("frozen", "trained, not ['batch_normalization/gamma:0'"),
        ("adapted", "trained, not ['normalization/mean:0'"),
        ("renorm", "moving_stddev"),
        ("by_row", "over the last axis"),
    ):
        with refused("model") as caught:
            _model(function)
        assert said in str(caught.value)


def test_its_shared_change_can_be_flipped(silos):
    built = _PARAMS.build(silos, silos.model.initial_weights(0))
    attacks.attacked(built, silos, attacks.parse("sign_flip:0.3:2"), seed=0)


def test_vectorized_is_not_taken(silos):
    for asked in ("auto", "vectorized"):
        name, why = backend_choice.choose(asked, "mean", silos, False, 1e9)
        assert name == "sequential" and "batch statistics" in why


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_run_goes_on_exports_and_is_started_from(silos, tmp_path):
    params = dataclasses.replace(_PARAMS, train_batch_size=100, train_epochs=1)

    def run(name, rounds):
        with in_process.small():
            interface.run(
                silos, params, rounds=rounds, clients_per_round=2,
                backend=BackendConfig(name="sequential"), root_output_dir=str(tmp_path),
                experiment_name=name,
            )  # fmt: skip

    run("whole", 2)
    run("cut", 1)
    run("cut", 2)
    for name in (model_files.FILE_NAME, model_files.PERSONAL_FILE_NAME):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    exported = model_files.load(str(tmp_path / "whole"), silos.model.shapes)
    untrained = silos.model.initial_weights(0)
    for a, b, own in zip(exported, untrained, silos.model.is_norm, strict=True):
        assert np.array_equal(a, b) == own
    personal = np.load(tmp_path / "whole" / model_files.PERSONAL_FILE_NAME)
    assert personal["w004"].shape == (3, 5) and len(np.unique(personal["w004"])) > 5
    _PARAMS.build(silos, exported)
