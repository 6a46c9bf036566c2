"""A model of one's own: what is taken, and a line for every rule that one breaks."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import datasets
from datasets.models import choice, users_model
from datasets.options import DataOptions
from motley_tff import BackendConfig, interface
from motley_tff.algorithms import FedAvg, FineTuning, KnnPer, optimizers
from motley_tff.core.layer_groups import Features
from tests.errors import refused
from tests.trainers import programs

_KEY = tf.constant([1, 2])
_EXAMPLE = (programs.ROOT / "launch" / "examples" / "my_module.py").read_text()
_CLASSES = choice.ModelFacts(3, (4,))
_NUMBERS = choice.ModelFacts(1, (4,), predicts_numbers=True)
_TOKENS = choice.ModelFacts(11, (5,), num_ids=11)
_EXAMPLES = {_CLASSES: np.zeros((1, 4), np.float32), _NUMBERS: np.zeros((1, 4), np.float32),
             _TOKENS: np.zeros((1, 5), np.int32)}  # fmt: skip
_HEAD = (
    "import functools, random\nimport numpy as np\nimport tensorflow as tf\nL = tf.keras.layers\n"
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Returns what writes a module into the working directory, under a name of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = (f"model_{os.getpid()}_{tmp_path.name}_{i}" for i in range(99))

    def written(text):
        name = next(names)
        pathlib.Path(f"{name}.py").write_text(_HEAD + text)
        return f"{name}:build"

    return written


def _build(model, facts=_CLASSES, **options):
    options = DataOptions("table", model=model, **options)
    return choice.build(options, {"linear": None}, facts, _EXAMPLES[facts])


def _sequential(*layers):
    return f"def build(facts):\n    return tf.keras.Sequential([{', '.join(layers)}])\n"


def _subclass(call, make="", more=""):
    return f"""
class Model(tf.keras.Model):
    def __init__(self, facts):
        super().__init__()
        self.b = L.Dense(facts.num_outputs)
        self.a = L.Dense(6, activation="tanh")
        {make}
    def call(self, x, training=False, key=None):
        {call}
    {more}
def build(facts):
    return Model(facts)
"""


_PLAIN = _sequential('L.Dense(6, activation="tanh")', "L.Dense(facts.num_outputs)")


def test_a_sequential_of_this_folder_is_a_function_of_its_weights(write, tmp_path):
    name = write(_PLAIN)
    assert users_model.find(name).parent == tmp_path
    tf.keras.layers.Dense(1)  # Names do not depend on what was made before.
    model = _build(name)
    assert model.shapes == ((4, 6), (6,), (6, 3), (3,))
    assert model.is_last_layer == (False, False, True, True) and model.vectorizes
    assert model.names == ("dense/kernel:0", "dense/bias:0", "dense_1/kernel:0", "dense_1/bias:0")
    w = model.initial_weights(5)
    x = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    hidden = np.tanh(x @ w[0] + w[1])
    np.testing.assert_allclose(model.predict(w, x, True, _KEY), hidden @ w[2] + w[3], atol=1e-6)
    np.testing.assert_allclose(model.embed(w, x), hidden, atol=1e-6)


_OUT = "L.Dense(facts.num_outputs)"
# (module, weights' shapes)
_WEIGHTS = [
    # By the order of calls, not of attributes.
    (_subclass("return self.b(self.a(x))"), ((4, 6), (6,), (6, 3), (3,))),
    # The last layer is the innermost with weights.
    (_sequential(f"tf.keras.Sequential([L.Dense(5), {_OUT}])"), ((4, 5), (5,), (5, 3), (3,))),
    (_sequential("L.Dense(6)", _OUT, "L.ReLU()"), ((4, 6), (6,), (6, 3), (3,))),
    # Layers in lists.
    (
        _subclass("return self.b(self.rest[0](x))", "self.rest = [L.Dense(5)]"),
        ((4, 5), (5,), (5, 3), (3,)),
    ),
]


@pytest.mark.parametrize(("text", "shapes"), _WEIGHTS)
def test_weights_and_the_last_layer(write, text, shapes):
    model = _build(write(text))
    assert model.shapes == shapes and model.is_last_layer == (False, False, True, True)
    if "ReLU" in text:
        w, x = model.initial_weights(0), np.ones((2, 4), np.float32)
        np.testing.assert_allclose(model.embed(w, x), x @ w[0] + w[1], atol=1e-6)
    numbers = _build(write(text), _NUMBERS)  # These have no axis of one.
    outputs = numbers.predict(numbers.initial_weights(0), np.ones((7, 4), np.float32), False, _KEY)
    assert outputs.shape == (7,)


def test_a_sequential_can_be_cut_between_its_layers(write):
    model = _build(write(_sequential("L.Dense(6)", _OUT, "L.ReLU()")), _NUMBERS)
    assert [(cut.num_weights, cut.shape) for cut in model.cuts] == [
        (2, (6,)), (4, (1,)), (4, (1,)), (4, ()),
    ]  # fmt: skip
    w, x = model.initial_weights(0), np.ones((2, 4), np.float32)
    for cut in model.cuts:
        features = Features(model.features(w, x, cut, True), cut)
        outputs = model.predict(w, features, True, _KEY)
        np.testing.assert_allclose(outputs, model.predict(w, x, True, _KEY), atol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        _subclass("return self.b(self.a(x))"),
        # Features would lose its mask.
        _sequential(
            "L.Reshape((2, 2))", "L.Masking()", "L.Dense(2)", "L.GlobalAveragePooling1D()", _OUT
        ),
    ],
)
def test_other_models_are_not_cut(write, text):
    assert not any(cut.num_weights for cut in _build(write(text)).cuts)


def test_a_class_may_say_its_last_layer_its_representation_and_draw_with_the_key(write):
    call = (
        "from motley_tff.core import tensor_random\n"
        "        h = self.embed(x)\n"
        "        return self.b(tensor_random.dropout(h, 0.5, key) if training else h)"
    )
    more = (
        "last_layer = property(lambda self: self.a)\n"
        "    def embed(self, x):\n        return self.a(x)"
    )
    model = _build(write(_subclass(call, more=more)))
    assert model.is_last_layer == (True, True, False, False)
    w = model.initial_weights(1)
    x = np.ones((5, 4), np.float32)
    first, same, other = (model.predict(w, x, True, tf.constant([k, 0])) for k in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)
    assert model.embed(w, x).shape == (5, 6)


def test_text(write):
    text = _subclass("return self.b(self.embed(x))", "self.e = L.Embedding(facts.num_ids, 8); "
                     "self.l = L.LSTM(7, return_sequences=True)",
                     "def embed(self, x):\n        return self.l(self.e(x))")  # fmt: skip
    model = _build(write(text), _TOKENS)
    w = tuple(map(tf.constant, model.initial_weights(0)))
    x = np.zeros((2, 5), np.int32)
    assert model.predict(w, x, False, _KEY).shape == (2, 5, 11)
    assert model.embed(w, x).shape == (2, 5, 7)  # Of each token.


def test_logits_of_another_task_are_a_line(write):
    text = _subclass("return self.b(tf.reduce_mean(self.e(x), 1))",
                     "self.e = L.Embedding(facts.num_ids, 8)")  # fmt: skip
    name = write(text)
    with refused("model") as caught:
        datasets.create("text", use_synthetic_data=True, model=name)
    assert name in str(caught.value)


def test_knn_per_asks_for_a_representation_at_once(write):
    text = _subclass("return self.b(self.a(x))")
    task = datasets.create("table", use_synthetic_data=True, model=write(text))
    with refused("model", expected="kNN-Per", advice="embed(self, x)"):
        KnnPer().build(task)
    assert any(path.endswith(".py") for path in task.facts["files"])
    KnnPer().build(datasets.create("table", use_synthetic_data=True, model=write(_PLAIN)))


_DENSE = "L.Dense(facts.num_outputs)"
_NEW = "a new model of new layers"
_BROKEN = {
    # What build is, and gives.
    "build = 3": "a function build in ",
    "raise OSError('no disk')": "failed: OSError: no disk (",
    "def build(facts):\n    return": "build(facts) to return a Keras model, not None",
    "def build(facts):\n    return 1 / 0": "line 6)",
    "def build(facts):\n    i = tf.keras.Input((4,))\n"
    "    return tf.keras.Model(i, L.Dense(3)(i))": _NEW,
    _sequential("L.Embedding(5, 2)", "L.GlobalMaxPool1D()", _DENSE): _NEW,
    _subclass("return self.s(x)", "self.s = tf.keras.Sequential([L.Dense(3, input_shape=(4,))])"):
        _NEW,
    "d = L.Dense(3)\nd.build((None, 4))\n" + _sequential("d"): _NEW,
    # A second time.
    _sequential("L.Dropout(0.05)", _DENSE): "with training=True; draw from `key`",
    _sequential("L.Reshape((2, 2))", "L.LSTM(3, dropout=0.1)", _DENSE): "training=True; draw",
    _subclass("return self.b(x) * tf.random.uniform([])"): "with training=False; draw",
    "n = [0]\n" + _subclass("n[0] += 1\n        return self.b(x) * n[0]"): "count nothing",
    _sequential("L.Dense(3, kernel_initializer=lambda s, dtype: tf.random.normal(s))"):
        "the same weights from the same seed",
    # Half of the batch; inside a graph.
    _subclass("return self.b(x - tf.reduce_mean(x, 0))"): "the others of its batch",
    _subclass("return self.b(x) if x.numpy().any() else x"): "inside a graph failed: Attribu",
    _subclass("return self.b(x) * float(tf.executing_eagerly())"): "same outputs inside a graph",
    "v = tf.Variable(2.0)\n" + _subclass("return self.b(x) * v"): "weights, such as Variable:0",
    # Weights.
    _sequential("L.Normalization()", _DENSE): "what adapts to data but BatchNormalization",
    _sequential("L.Dense(6, trainable=False)", _DENSE): "not ['dense/kernel:0'",
    _subclass("return self.b(x) * self.v", "self.v = tf.Variable(1.0)"): "variables that are all",
    _sequential("L.Dense(facts.num_outputs, kernel_regularizer='l2')"): "no losses",
    _sequential("L.Dense(facts.num_outputs, kernel_constraint='non_neg')"): "constraints of its",
    _sequential("L.Dense(facts.num_outputs, dtype='float64')"): "float32 weights",
    _sequential("L.Flatten()"): "weights to train; ",
    # Outputs, and what a class says of itself.
    _sequential("L.Dense(7)"): "outputs [batch, 3], not [batch, 7]",
    _sequential("L.Dense(3, activation='softmax')"): "not probabilities",
    _subclass("return self.b(x), x"): "one float32 tensor as outputs, not a tuple",
    _subclass("return self.b(x[:, :9, 0])"): "the model's call on inputs [batch, 4] failed",
    _subclass("return self.b(self.a(x))", more="last_layer = 'b'"): "of such, not ('b',)",
    _subclass("return self.b(self.a(x))", more="def embed(self, x):\n        return self.b(x)"):
        "that call uses first, not those of [(4, 3), (3,)]",
    _subclass("return self.b(self.a(x))", more="def embed(self, x):\n        return self.a(x)[0]"):
        "[batch, numbers], not [6, 1]",
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), _BROKEN.items(), ids=range(len(_BROKEN)))
def test_a_broken_rule_is_a_line(write, text, said):
    model = write(text)
    with refused("model", model) as caught:
        _build(model)
    line = caught.value.line(with_flags=True)
    assert line.startswith(f"--model={model}: ") and said in line and len(line) < 700


def test_names_that_are_none(write, tmp_path):
    for model, expected in (
        ("nothing_there:build", str(tmp_path / "nothing_there.py")),
        ("my_module.py:build", "without folders or .py"),
        ("folder/my_module:build", "without folders or .py"),
        ("my.module", "module:function"),
        ("no.such.package:build", "No module named 'no'"),
    ):
        with refused("model", model, expected):
            datasets.check_options(DataOptions("table", use_synthetic_data=True, model=model))
    with refused("model", "cnn", "one of linear, which table offers"):
        _build("cnn")
    plain = write(_PLAIN)
    with refused("model_sizes", (3,), f"(linear), not {plain}"):
        _build(plain, model_sizes=(3,))
    with refused("model") as caught:
        datasets.check_options(DataOptions("school", model="my_module:build"))
    assert "emnist" in str(caught.value)
    pathlib.Path("random.py").write_text(_PLAIN)
    with refused("model", "random:build", "random.py", str(tmp_path / "random.py")):
        _build("random:build")


@pytest.mark.usefixtures("eagerly")
def test_the_examples_model_is_trained_and_told_from_another(write, tmp_path):
    model = write("")
    path = pathlib.Path(model.replace(":build", ".py"))

    def run():
        task = datasets.create("table", use_synthetic_data=True, model=model, max_clients=6)
        return interface.run(
            task, FedAvg(optimizers.OptimizerConfig("sgd", 0.1)), FineTuning(max_epochs=1),
            rounds=1, clients_per_round=2,
            backend=BackendConfig(name="sequential"), root_output_dir=str(tmp_path),
        )  # fmt: skip

    path.write_text(_EXAMPLE)
    assert np.isfinite(run().clients.personalized_loss).all()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert list(record["data_files"]) == [path.name]
    path.write_text(_EXAMPLE.replace("0.2", "0.3"))
    with refused() as caught:
        run()
    assert path.name in str(caught.value)


@pytest.mark.slow
def test_a_sweep_finds_the_model_in_its_working_directory(tmp_path):
    (tmp_path / "my_module.py").write_text(_HEAD + _PLAIN)
    (tmp_path / "grid.yaml").write_text(
        "algorithm: x\ndataset: table\ntrainer: finetuning_trainer\n"
        "fixed: {model: 'my_module:build', total_rounds: 1, finetune_max_epochs: 1}\n"
        "grid: {client_learning_rate: [0.1]}\n"
    )
    command = [sys.executable, "-m", "launch.sweeps.command", "grid.yaml", "--use_synthetic_data",
               "--seeds=1"]  # fmt: skip
    environment = programs.environment()
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "results" / "grid" / "run.json").read_text())
    assert record["model_dir"] == str(tmp_path)
    (tmp_path / "my_module.py").unlink()
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2 and "--model=my_module:build" in done.stderr


def test_modules_are_looked_for_without_tensorflow(tmp_path):
    (tmp_path / "my_module.py").write_text("import tensorflow")
    code = (
        "import sys, datasets; o = datasets.DataOptions('table', use_synthetic_data=True, "
        "model='my_module:build'); datasets.check_options(o); print('tensorflow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env=programs.environment(),
    )  # fmt: skip
    assert done.stdout == "False\n", done.stderr
