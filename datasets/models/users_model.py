"""A model of one's own: `--model=my_module:build`, a plain Keras model, by a few rules.

`build(facts)` gets `ModelFacts` and returns a new `tf.keras.Sequential`, or a subclass of
`tf.keras.Model` whose `call` takes `x`, if it likes `training`, and for dropout `key`. A class may
also have `last_layer`, a layer or several (by default the one whose weights are made last), and
`embed(x)`, for kNN-Per (of a Sequential: all before its last layer with weights).

The model becomes a function of its weights (`core.functional_model`): it is built anew wherever it
is traced, on every backend. So what it does may depend on nothing else, and each rule that a model
breaks is an error of one line, found before anything is trained.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from datasets.models import batch_norm
from motley_tff.core import errors, functional_model, plugins
from motley_tff.core.errors import UserError
from motley_tff.core.layer_groups import LayerGroup
from motley_tff.core.lazy import tf

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_MAX_WORDS = 300
# Examples that a model is tried on, enough for rare dropout to show; how far float32 sums differ.
_NUM_TRIED, _TOLERANCE = 32, 1e-4
_ADD_WEIGHT = "make weights by add_weight in layers that are the model's attributes"


class ModelFacts(NamedTuple):
    """What a model has to know of its data.

    Attributes:
      num_outputs: Outputs an example: a logit a class, or 1 number; of next words, logits a token.
      input_shape: Of one example, such as (28, 28, 1); of text (number of tokens,).
      num_ids: Of text: token ids are below it; else None.
      predicts_numbers: Whether the output is a number [batch] and no logits.
      mean_label: Of numbers, the mean of the training labels, at which outputs may start: a client
        that trains alone on few examples hardly gets there from 0.
    """

    num_outputs: int
    input_shape: tuple[int, ...]
    num_ids: int | None = None
    predicts_numbers: bool = False
    mean_label: float = 0.0


def is_named(model: str | None) -> bool:
    """Returns whether `model` names a module's function, and no model that a data set offers."""
    return model is not None and any(character in model for character in ":/.")


def find(model: str) -> pathlib.Path:
    """Returns the module's file, in the working directory or among installed packages; UserError
    if there is none. The module itself is not imported.
    """
    if not _NAME.fullmatch(model) or ".py:" in model:
        expected = "module:function, such as my_module:build, without folders or .py"
        advice = "put the module into the working directory, or install it"
        raise _error(model, expected, advice)
    module = model.partition(":")[0]
    with _working_directory_first():
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError) as error:
            expected = f"a module that can be looked for ({plugins.described(error)})"
            raise _error(model, expected) from error
    here = pathlib.Path.cwd() / f"{module.replace('.', '/')}.py"
    if spec is None or not spec.origin or not os.path.exists(spec.origin):
        expected = f"{here}, or an installed module of that name"
        advice = "start this where the file is, or put its folder on PYTHONPATH"
        raise _error(model, expected, advice)
    if here.exists() and not os.path.samefile(here, spec.origin):
        expected = f"another name than that of {spec.origin}, which is loaded already"
        raise _error(model, expected, f"rename {here}")
    return pathlib.Path(spec.origin)


@contextlib.contextmanager
def _working_directory_first() -> Iterator[None]:
    """Looks for modules in the working directory first, and from then on there as well."""
    here = os.getcwd()
    before = list(sys.path)
    sys.path[:] = [here, *before]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before if here in before or "" in before else [*before, here]


def build(model: str, facts: ModelFacts, example_input: Any) -> functional_model.FunctionalModel:
    """Returns the model as pure functions, after trying it; UserError names the rule it breaks."""
    source = _ModelSource(model, find(model), facts, np.asarray(example_input))
    _ = source.function  # Variables of its module are none of a model's.
    tf.keras.backend.reset_uids()  # Layers' names do not depend on what was made before.
    trial = UsersModel(source)
    with source.user_code(f"the model's call on inputs {_dims(source.example.shape[1:])}"):
        built = functional_model.from_keras(lambda: trial, source.inputs)
    built = dataclasses.replace(built, build=functools.partial(UsersModel, source))
    _check_weights(source, trial, built)
    _check_runs(source, built)
    _check_embed(source, built)
    return built


def _error(model: str, expected: str, advice: str = "") -> UserError:
    return UserError(errors.name("model"), model, expected, advice)


@dataclasses.dataclass
class _ModelSource:
    """A user's function in a file, and one example [1, ...] of the type that its models are for."""

    model: str
    path: pathlib.Path
    facts: ModelFacts
    example: np.ndarray

    def fail(self, expected: str, advice: str = "") -> UserError:
        """Returns an error that names the model."""
        return _error(self.model, expected, advice)

    @contextlib.contextmanager
    def user_code(self, doing: str) -> Iterator[None]:
        """Makes errors of the user's code one line, with their place in the user's file."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # Whatever it raises.
            words = plugins.described(error, str(self.path)).partition("Call arguments received")[0]
            words = words if len(words) <= _MAX_WORDS else f"{words[:_MAX_WORDS]}..."
            advice = f"mend {self.path.name}: {doing} failed: {words.strip()}"
            raise self.fail("code that runs", advice) from error

    @functools.cached_property
    def function(self) -> Callable[[ModelFacts], Any]:
        """The user's function; UserError if its module has none."""
        name, _, attribute = self.model.partition(":")
        with _working_directory_first(), self.user_code(f"importing {self.path}"):
            module = importlib.import_module(name)
        function = getattr(module, attribute, None)
        if not callable(function):
            advice = f"write def {attribute}(facts), which returns a Keras model"
            raise self.fail(f"a function {attribute} in {self.path}", advice)
        return function

    @property
    def inputs(self) -> np.ndarray:
        """Made-up examples [32, ...] in the range of real ones."""
        rng = np.random.default_rng(0)
        shape = (_NUM_TRIED, *self.example.shape[1:])
        if self.example.dtype.kind in "iu":
            return rng.integers(self.facts.num_ids or 2, size=shape).astype(self.example.dtype)
        return rng.normal(size=shape).astype(self.example.dtype)

    def new(self) -> Any:
        """Returns a new model of the user's; UserError if it is none, or not a new one."""
        name = self.function.__name__
        with self.user_code(f"{name}(facts)"):
            model = self.function(self.facts)
        if not isinstance(model, tf.keras.Model):
            advice = "return a tf.keras.Sequential or a subclass of tf.keras.Model"
            raise self.fail(f"{name}(facts) to return a Keras model, not {_kind(model)}", advice)
        if any(layer.built for layer in (model, *_layers(model))):
            expected = "a new model of new layers, without tf.keras.Input or input_shape"
            advice = f"make all of it in {name}(facts), and do not call it there"
            raise self.fail(expected, advice)
        return model


class UsersModel:
    """A user's model with what `functional_model.from_keras` asks of one.

    Attributes:
      created: Its variables, in the order in which they are made.
      vectorizes: As of `FunctionalModel`.
    """

    def __init__(self, source: _ModelSource):
        self._source = source
        self.created: list[Any] = []
        with self._recorded():
            self.model = source.new()
        self._batch_norms = list(filter(batch_norm.is_plain, _layers(self.model)))
        self._statistics = batch_norm.Statistics(self._batch_norms)
        takes = inspect.signature(self.model.call).parameters
        self._takes = [name for name in ("training", "key") if name in takes]
        self.vectorizes = getattr(self.model, "vectorizes", _is_small_and_dense(self.model))

    def _recorded(self) -> contextlib.AbstractContextManager[None]:
        def creator(next_creator, **kwargs):
            variable = next_creator(**kwargs)
            if variable.dtype != tf.int64:  # Every Keras model counts its batches.
                self.created.append(variable)
            return variable

        return tf.variable_creator_scope(creator)

    @property
    def non_trainable_variables(self) -> list[Any]:
        """None but BatchNormalization's; UserError if it has others, which nothing would change."""
        moving = {id(v) for n in self._batch_norms for v in (n.moving_mean, n.moving_variance)}
        others = [v.name for v in self.model.non_trainable_variables if id(v) not in moving]
        if others:
            advice = "leave out trainable=False, and what adapts to data but BatchNormalization()"
            raise self._source.fail(f"weights that are all trained, not {others}", advice)
        return []

    @property
    def new_statistics(self) -> list[Any]:
        """Moving statistics after training on a batch."""
        return self._statistics.new

    @property
    def submodules(self) -> tuple[Any, ...]:
        """All layers below it."""
        return self.model.submodules

    @property
    def last_layer(self) -> tuple[Any, ...]:
        """What "fine-tune the last layer" trains: by default the innermost layer of the weight that
        is made last.
        """
        layers = getattr(self.model, "last_layer", None)
        if layers is None:
            layers = _layers(self.model)
            owners = [x for x in layers if any(v is self.created[-1] for v in x.variables)]
            return tuple(sorted(owners, key=lambda layer: len(layer.variables))[:1])
        layers = tuple(layers) if isinstance(layers, list | tuple) else (layers,)
        are_layers = all(isinstance(layer, tf.keras.layers.Layer) for layer in layers)
        if not are_layers or not any(layer.trainable_variables for layer in layers):
            expected = "a layer with weights as last_layer, or a tuple of such"
            raise self._source.fail(f"{expected}, not {layers!r}")
        return layers

    def __call__(self, x: Any, training: bool, key: Any) -> Any:
        """Returns logits, or numbers [batch]."""
        arguments = {"training": training, "key": key}
        with self._recorded():
            outputs = self.model(x, **{name: arguments[name] for name in self._takes})
        return self._numbers(outputs)

    def _numbers(self, outputs: Any) -> Any:
        """Returns outputs [batch, 1] of numbers as [batch], others as they are."""
        if self._source.facts.predicts_numbers and tuple(outputs.shape[1:]) == (1,):
            return tf.squeeze(outputs, axis=-1)
        return outputs

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """The layers of a plain Sequential; of others nothing is known."""
        if type(self.model) is not tf.keras.Sequential:
            return ()
        layers = (LayerGroup(functools.partial(_call_layer, layer)) for layer in self.model.layers)
        return (*layers, LayerGroup(lambda h, *_: self._numbers(h)))

    @property
    def embeds(self) -> bool:
        """Whether it has a representation below the last layer."""
        return hasattr(self.model, "embed") or isinstance(self.model, tf.keras.Sequential)

    def embed(self, x: Any) -> Any:
        """Returns the representation below the last layer: [batch, dim], or of each token."""
        if not self.embeds:
            expected = "the representation below the last layer, for kNN-Per"
            method = "a method embed(self, x) that returns it, and let call begin with it"
            raise self._source.fail(expected, f"give the model {method}")
        with self._recorded():
            below = self.model.embed(x) if hasattr(self.model, "embed") else self._below(x)
        is_of_tokens = self._source.facts.num_ids is not None and len(below.shape) == 3
        if is_of_tokens or len(below.shape) == 2:
            return below
        return tf.reshape(below, [-1, tf.TensorShape(below.shape[1:]).num_elements()])

    def _below(self, x: Any) -> Any:
        """Returns what goes into the last layer with weights of a Sequential, float32."""
        below = outputs = tf.convert_to_tensor(x)
        for layer in self.model.layers:
            inputs, outputs = outputs, layer(outputs)
            below = inputs if layer.variables else below
        return tf.cast(below, tf.float32)


def _check_weights(
    source: _ModelSource, trial: UsersModel, built: functional_model.FunctionalModel
) -> None:
    """Checks that all weights are drawn by seeds and averaged as they are."""
    if not built.shapes:
        raise source.fail("weights to train", "give it a layer such as Dense")
    if len(built.shapes) != len(trial.model.variables):  # Some are not drawn by an initializer.
        expected = "variables that are all weights, and made anew with each model"
        raise source.fail(expected, _ADD_WEIGHT)
    if any(v.dtype != tf.float32 for v in trial.created):
        raise source.fail("float32 weights", "leave dtype out")
    if trial.model.losses or any(getattr(v, "constraint", None) for v in trial.created):
        expected = "no losses, regularizers or constraints of its own: they would not count"
        raise source.fail(expected, f"leave them out (for silos there is {errors.name('l2_reg')})")


def _check_outputs(source: _ModelSource, outputs: Any) -> None:
    facts = source.facts
    if not tf.is_tensor(outputs) or outputs.dtype != tf.float32:
        raise source.fail(f"one float32 tensor as outputs, not {_kind(outputs)}")
    ends: list[tuple[int, ...]] = [() if facts.predicts_numbers else (facts.num_outputs,)]
    if facts.num_ids is not None and not facts.predicts_numbers:  # A logit a token at each place.
        ends.append((*source.example.shape[1:], facts.num_outputs))
    if tuple(outputs.shape[1:]) not in ends:
        expected = " or ".join(_dims(end or (1,)) for end in ends)
        shape = _dims(outputs.shape[1:])
        raise source.fail(f"outputs {expected}, not {shape}", "look at facts.num_outputs")
    values = outputs.numpy()
    if facts.num_outputs > 1 and values.min() >= 0 and np.allclose(values.sum(-1), 1, atol=1e-5):
        raise source.fail("logits as outputs, not probabilities", "leave the softmax out")


def _check_runs(source: _ModelSource, built: functional_model.FunctionalModel) -> None:
    """Checks by three runs that outputs depend on weights, inputs and key alone, each example's on
    its own: a second time, half of the batch, and inside a graph.
    """
    with source.user_code("drawing the first weights"):
        first, again = built.initial_weights(0), built.initial_weights(0)
    if not all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)):
        expected = "initializers that draw the same weights from the same seed"
        raise source.fail(expected, "take some of tf.keras.initializers")
    rng, key = np.random.default_rng(1), tf.constant([3, 4])
    weights = [tf.constant((w + 0.1 * rng.normal(size=w.shape)).astype(np.float32)) for w in first]

    def predict(x: Any, training: bool) -> Any:
        with source.user_code(f"the model's call with training={training}"):
            return built.predict(weights, x, training, key)

    x, half = source.inputs, _NUM_TRIED // 2
    _check_outputs(source, predict(x, False))
    for training in (False, True):
        outputs = predict(x, training)
        if not _are_close(outputs, predict(x, training)):
            expected = f"the same outputs a second time, with training={training}"
            advice = "draw from `key` alone, with no Dropout layer or tf.random, and count nothing"
            raise source.fail(expected, advice)
        if not training and not _are_close(outputs[:half], predict(x[:half], training)):
            expected = "outputs that do not depend on the others of its batch, which may be padding"
            raise source.fail(expected, "leave out what averages over a batch")
        if not _are_close(outputs, _traced(source, built, weights, training, key)):
            expected = f"the same outputs inside a graph, with training={training}"
            raise source.fail(expected, "let call depend on its arguments alone")


def _traced(
    source: _ModelSource,
    built: functional_model.FunctionalModel,
    weights: list[Any],
    training: bool,
    key: Any,
) -> Any:
    """Returns the outputs of a graph that knows no batch size; UserError if it has variables."""

    @functools.partial(tf.function, autograph=False)
    def predict(x, *weights):
        return built.predict(weights, x, training, key)

    spec = tf.TensorSpec([None, *source.example.shape[1:]], source.example.dtype)
    with source.user_code("the model's call inside a graph"):
        graph = predict.get_concrete_function(spec, *weights)
        outputs = graph(tf.constant(source.inputs), *weights)
    if graph.variables:
        expected = f"no variables but its weights, such as {graph.variables[0].name}"
        raise source.fail(expected, _ADD_WEIGHT)
    return outputs


def _check_embed(source: _ModelSource, built: functional_model.FunctionalModel) -> None:
    """Checks that `embed` asks for the first of the weights, in the order of `call`."""
    trial = UsersModel(source)
    if not trial.embeds:
        return
    with source.user_code("embed(x)"):
        below = trial.embed(source.inputs)
    shapes = tuple(tuple(v.shape) for v in trial.created)
    if shapes != built.shapes[: len(shapes)]:
        expected = f"embed(x) to use the weights that call uses first, not those of {[*shapes]}"
        raise source.fail(expected, "let call begin with self.embed(x)")
    if len(below) != _NUM_TRIED:
        raise source.fail(f"embed(x) to return [batch, numbers], not {list(below.shape)}")


def _call_layer(layer: Any, h: Any, training: bool, key: Any) -> Any:
    """Returns what a layer of a Sequential makes of `h`; such layers draw nothing."""
    takes = inspect.signature(layer.call).parameters
    return layer(h, training=training) if "training" in takes else layer(h)


def _layers(model: Any) -> list[Any]:
    """Returns all layers below a model, in a fixed order."""
    return list(model._flatten_layers(include_self=False))


def _is_small_and_dense(model: Any) -> bool:
    """Whether it is a Sequential of dense layers, which are faster with clients stacked."""
    kinds = {type(layer).__name__ for layer in getattr(model, "layers", ())}
    is_plain = isinstance(model, tf.keras.Sequential)
    return is_plain and kinds <= {"Activation", "Dense", "Flatten", "LayerNormalization", "ReLU"}


def _are_close(a: Any, b: Any) -> bool:
    return np.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


def _kind(value: Any) -> str:
    if tf.is_tensor(value):
        return f"a {value.dtype.name} tensor"
    return "None" if value is None else f"a {type(value).__name__}"


def _dims(dims: Iterable[int]) -> str:
    return f"[{', '.join(['batch', *map(str, dims)])}]"
