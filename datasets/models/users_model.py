"""A model of one's own: `--model=my_module:build`, a plain Keras model, by a few rules.

`build(facts)` gets `choice.ModelFacts` and returns a new `tf.keras.Sequential`, or a subclass of
`tf.keras.Model` whose `call` takes `x`, if it likes `training`, and for dropout `key`. A class may
also have `last_layer`, a layer or several (by default the one whose weights are made last), and
`embed(x)`, for kNN-Per (of a Sequential: all before its last layer with weights).

The model becomes a function of its weights (`core.functional_model`): it is built anew wherever it
is traced, on every backend. So what it does may depend on nothing else, and each rule that a model
breaks is an error of one line, found before anything is trained.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import os
import pathlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from motley_tff.core import errors, functional_model, plugins
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf

if TYPE_CHECKING:
    from datasets.models.choice import ModelFacts

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_MAX_WORDS = 300
# Examples that a model is tried on, and how far float32 sums may differ.
_NUM_TRIED, _TOLERANCE = 4, 1e-4
_ADD_WEIGHT = "make them by add_weight in a layer's build"


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
    tried = _Tried(model, find(model), _function(model), facts, np.asarray(example_input))
    tf.keras.backend.reset_uids()  # Layers' names do not depend on what was made before.
    parts = tried.check_layers()
    tf.keras.backend.reset_uids()
    create = functools.partial(_wrapped, tried, parts)
    with tried.user_code("the model"):
        built = functional_model.from_keras(create, tried.inputs)
    tried.check_function(built, parts)
    return built


def _error(model: str, expected: str, advice: str = "") -> UserError:
    return UserError(errors.name("model"), model, expected, advice)


def _function(model: str) -> Callable[..., Any]:
    path = find(model)
    name, _, attribute = model.partition(":")
    with _working_directory_first(), _named_errors(model, f"importing {path}", path):
        module = importlib.import_module(name)
    function = getattr(module, attribute, None)
    if not callable(function):
        there = sorted(
            n for n, f in vars(module).items() if isinstance(f, types.FunctionType) and n[0] != "_"
        )
        expected = f"a function of {path}, which has {', '.join(there[:5]) or 'none'}"
        advice = f"write def {attribute}(facts), which returns a Keras model"
        raise _error(model, expected, advice)
    return function


@contextlib.contextmanager
def _named_errors(model: str, what: str, path: pathlib.Path) -> Iterator[None]:
    """Makes errors of a user's code one line, with their place in the user's file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # Whatever it raises.
        words = plugins.described(error, str(path)).partition("Call arguments received")[0]
        words = words if len(words) <= _MAX_WORDS else f"{words[:_MAX_WORDS]}..."
        advice = f"mend {path.name}: {what} failed: {words.strip()}"
        raise _error(model, "code that runs", advice) from error


class _Created(NamedTuple):
    """A variable that came to be while a model was built or called first, and what it was from."""

    variable: Any
    initial_value: Any


class _Parts(NamedTuple):
    """Where a model's last layer is, as every new one has it.

    Attributes:
      last: Its number among all layers, where the model does not say which it is.
      num_below: Of a Sequential, how many of its layers come before the last one with weights;
        None of other models.
    """

    last: int
    num_below: int | None


class _Tried(NamedTuple):
    """A user's function, and what it is tried on.

    Attributes:
      example: One example, [1, ...], of the type that tasks have.
    """

    model: str
    path: pathlib.Path
    function: Callable[..., Any]
    facts: ModelFacts
    example: np.ndarray

    def fail(self, expected: str, advice: str = "") -> UserError:
        """Returns an error that names the model."""
        return _error(self.model, expected, advice)

    def user_code(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Names the model in errors of its code."""
        return _named_errors(self.model, what, self.path)

    @property
    def inputs(self) -> np.ndarray:
        """Made-up examples [4, ...] in the range of real ones."""
        rng = np.random.default_rng(0)
        shape = (_NUM_TRIED, *self.example.shape[1:])
        if self.example.dtype.kind in "iu":
            return rng.integers(self.facts.num_ids or 2, size=shape).astype(self.example.dtype)
        return rng.normal(size=shape).astype(self.example.dtype)

    def new(self) -> Any:
        """Returns a new model of the user's; UserError if it is none, or not a new one."""
        with self.user_code(f"{self.function.__name__}(facts)"):
            model = self.function(self.facts)
        if not isinstance(model, tf.keras.Model):
            expected = f"{self.function.__name__}(facts) to return a Keras model"
            advice = "return a tf.keras.Sequential or a subclass of tf.keras.Model"
            raise self.fail(f"{expected}, not {_kind(model)}", advice)
        if any(map(_has_placeholders, (model, *model.submodules))):
            kind = "tf.keras.Input or input_shape (a Sequential that begins with Embedding has one)"
            advice = "leave the shape out, or write a subclass of tf.keras.Model"
            raise self.fail(f"no {kind}, which is never fed inside TFF", advice)
        if model.built:
            advice = "leave that out: its weights are made when it is first called"
            raise self.fail("a model that was not built or called before it is returned", advice)
        return model

    def check_layers(self) -> _Parts:
        """Checks what a new model is made of, and returns it."""
        created: list[_Created] = []

        def creator(next_creator, **kwargs):
            variable = next_creator(**kwargs)
            if variable.dtype != tf.int64:  # Every Keras model counts its batches.
                created.append(_Created(variable, kwargs.get("initial_value")))
            return variable

        with tf.variable_creator_scope(creator):
            model = self.new()
            # Random layers first: some make variables, which are not what is wrong.
            self._check_randomness(model)
            wrapped = UsersModel(self, model, _Parts(0, None))
            with self.user_code(f"the model's call on inputs {_shape(self.inputs)}"):
                outputs = wrapped(self.inputs, False, tf.zeros([2], tf.int32))
        self._check_randomness(model)
        self._check_weights(model, created)
        self._check_outputs(outputs)
        return _Parts(_last_layer(model, created), _num_below(model))

    def _check_randomness(self, model: Any) -> None:
        for layer in _layers(model):
            kinds = {kind.__name__ for kind in type(layer).__mro__}
            rates = [
                getattr(layer, name)
                for name in ("rate", "stddev", "dropout", "recurrent_dropout")
                if isinstance(getattr(layer, name, None), (int, float))
            ]
            if "BaseRandomLayer" in kinds and (not rates or any(rates)):
                kind = (
                    f"that draws from Keras's own state, as {layer.name} ({type(layer).__name__})"
                )
                dropout = "motley_tff.core.tensor_random.dropout(x, rate, key) if training"
                advice = f"write call(self, x, training, key) and use {dropout}"
                raise self.fail(f"no layer {kind}", advice)

    def _check_weights(self, model: Any, created: list[_Created]) -> None:
        fixed = [v.name for v in model.non_trainable_variables]
        if fixed:
            expected = f"only weights that can be averaged, all trained, not {', '.join(fixed)}"
            better = "tf.keras.layers.GroupNormalization for BatchNormalization"
            raise self.fail(expected, f"take {better}, and no trainable=False")
        ids, seen = ({id(c.variable) for c in created}, {id(v) for v in model.variables})
        if older := [v.name for v in model.variables if id(v) not in ids]:
            expected = f"no weights that were there before, such as {', '.join(older)}"
            advice = f"make the model and its layers inside {self.function.__name__}(facts)"
            raise self.fail(expected, advice)
        if unseen := [c.variable.name for c in created if id(c.variable) not in seen]:
            expected = f"no variables that Keras does not know as weights, such as {unseen[0]}"
            raise self.fail(expected, f"{_ADD_WEIGHT}, and keep layers as the model's attributes")
        if not created:
            raise self.fail("weights to train", "give it a layer such as Dense")
        for variable, initial_value in created:
            self._check_weight(variable, initial_value)
        if model.losses:
            expected = (
                "no losses of its own (a regularizer, add_loss): they would count for nothing"
            )
            advice = f"leave them out (for silos, {errors.name('l2_reg')} adds a regularizer)"
            raise self.fail(expected, advice)

    def _check_weight(self, variable: Any, initial_value: Any) -> None:
        if not isinstance(initial_value, functools.partial):  # What add_weight makes of one.
            made = (
                'add_weight(..., initializer="glorot_uniform") or others of tf.keras.initializers'
            )
            expected = "an initializer, which seeds can be given to, of the weight"
            raise self.fail(f"{expected} {variable.name}", f"make it by {made}")
        if variable.dtype != tf.float32:
            raise self.fail(f"float32 weights, and {variable.name} is {variable.dtype.name}")
        if getattr(variable, "constraint", None) is not None:
            expected = f"no constraint, as {variable.name} has, which averaging would not keep"
            raise self.fail(expected, "leave it out")

    def _check_outputs(self, outputs: Any) -> None:
        if not tf.is_tensor(outputs) or outputs.dtype != tf.float32:
            raise self.fail(f"one float32 tensor as outputs, not {_kind(outputs)}")
        n, shape = self.facts.num_outputs, tuple(outputs.shape)
        right: list[tuple[int, ...]]
        if self.facts.predicts_numbers:
            right, expected = [(_NUM_TRIED,)], "[batch, 1]: a number an example"
        else:
            right, expected = [(_NUM_TRIED, n)], f"{_dims(n)}: a logit a class"
            if self.facts.num_ids is not None:  # Or a logit a token, for each place.
                right.append((_NUM_TRIED, *self.example.shape[1:], n))
                expected += f", or of next words {_dims(*self.example.shape[1:], n)}"
        if shape not in right:
            expected = f"outputs {expected}, not {_dims(*shape[1:])}"
            raise self.fail(expected, "look how many facts.num_outputs says")
        values = outputs.numpy()
        if n > 1 and values.min() >= 0.0 and np.allclose(values.sum(-1), 1.0, atol=1e-5):
            raise self.fail("logits as outputs, not probabilities", "leave the softmax out")

    def check_function(self, built: functional_model.FunctionalModel, parts: _Parts) -> None:
        """Checks that outputs depend on weights and inputs alone, each example's on its own."""
        with self.user_code("drawing the first weights"):
            first, drawn_again = built.initial_weights(0), built.initial_weights(0)
        if not all(np.array_equal(a, b) for a, b in zip(first, drawn_again, strict=True)):
            expected = "initializers that draw the same weights from the same seed"
            raise self.fail(expected, "take some of tf.keras.initializers")
        rng = np.random.default_rng(1)
        weights = [(w + 0.1 * rng.normal(size=w.shape)).astype(np.float32) for w in first]
        key = tf.constant([3, 4])

        def predict(x: Any, training: bool) -> np.ndarray:
            with self.user_code(f"the model's call with training={training}"):
                return built.predict([tf.constant(w) for w in weights], x, training, key).numpy()

        self._check_no_other_variables(built, weights, key)
        for training in (False, True):
            outputs, again = predict(self.inputs, training), predict(self.inputs, training)
            traced = self._traced(built, weights, training, key)
            if not (_are_close(outputs, again) and _are_close(outputs, traced)):
                expected = "the same outputs of the same weights and inputs a second time"
                advice = "draw with `key` alone, and let call depend on its arguments, no counters"
                raise self.fail(f"{expected}, with training={training}", advice)
        half = self.inputs[: _NUM_TRIED // 2]
        if not _are_close(predict(self.inputs, False)[: len(half)], predict(half, False)):
            expected = "outputs that do not depend on the others of its batch, which may be padding"
            raise self.fail(expected, "leave out what averages over a batch")
        if parts.num_below is not None or hasattr(self.new(), "embed"):
            self._check_embed(built, weights)

    def _check_no_other_variables(
        self, built: functional_model.FunctionalModel, weights: Any, key: Any
    ) -> None:
        with tf.GradientTape() as tape, self.user_code("the model's call"):
            built.predict([tf.constant(w) for w in weights], self.inputs, True, key)
        if names := [v.name for v in tape.watched_variables()]:
            expected = f"no variables that are none of its weights, such as {', '.join(names)}"
            raise self.fail(expected, _ADD_WEIGHT)

    def _traced(
        self, built: functional_model.FunctionalModel, weights: Any, training: bool, key: Any
    ) -> np.ndarray:
        """Returns the outputs of a graph that knows no batch size."""
        spec = tf.TensorSpec([None, *self.example.shape[1:]], self.example.dtype)

        def predict(x, *weights):
            return built.predict(weights, x, training, key)

        with self.user_code("the model's call inside a graph"):
            graph = tf.function(predict, autograph=False).get_concrete_function(
                spec, *(tf.TensorSpec(w.shape, tf.float32) for w in weights)
            )
            return graph(tf.constant(self.inputs), *map(tf.constant, weights)).numpy()

    def _check_embed(self, built: functional_model.FunctionalModel, weights: Any) -> None:
        """Checks that `embed` asks for the first of the weights, in the order of `call`."""
        asked: list[tuple[int, ...]] = []

        def creator(next_creator, **kwargs):
            variable = next_creator(**kwargs)
            if variable.dtype != tf.int64:
                asked.append(tuple(variable.shape))
            return variable

        with tf.variable_creator_scope(creator), self.user_code("embed(x)"):
            made = built.build().embed(self.inputs)
        if tuple(asked) != built.shapes[: len(asked)]:
            first = [*built.shapes[: len(asked)]]
            expected = f"embed(x) to use the weights that call uses first, {first}, not {asked}"
            raise self.fail(expected, "let call begin with self.embed(x)")
        if len(made) != _NUM_TRIED or len(made.shape) < 2:
            raise self.fail(f"embed(x) to return [batch, numbers], not {_shape(made)}")


def _wrapped(tried: _Tried, parts: _Parts) -> UsersModel:
    return UsersModel(tried, tried.new(), parts)


class UsersModel:
    """A user's model with what `functional_model.from_keras` asks of one."""

    def __init__(self, tried: _Tried, model: Any, parts: _Parts):
        self._tried, self._model, self._parts = tried, model, parts
        takes = inspect.signature(model.call).parameters
        self._takes = [name for name in ("training", "key") if name in takes]
        self.vectorizes = getattr(model, "vectorizes", _is_small_and_dense(model))

    @property
    def trainable_variables(self) -> list[Any]:
        """Its weights."""
        return self._model.trainable_variables

    @property
    def non_trainable_variables(self) -> list[Any]:
        """None, as was checked."""
        return self._model.non_trainable_variables

    @property
    def last_layer(self) -> tuple[Any, ...]:
        """What "fine-tune the last layer" trains."""
        given = getattr(self._model, "last_layer", None)
        if given is None:
            return (_layers(self._model)[self._parts.last],)
        layers = given if isinstance(given, (list, tuple)) else (given,)
        if not all(isinstance(layer, tf.keras.layers.Layer) for layer in layers) or not any(
            layer.trainable_variables for layer in layers
        ):
            expected = "a layer with weights as last_layer, or a tuple of such"
            raise self._tried.fail(f"{expected}, not {given!r}")
        return tuple(layers)

    def __call__(self, x: Any, training: bool, key: Any) -> Any:
        """Returns logits, or numbers [batch]."""
        given = {"training": training, "key": key}
        outputs = self._model(x, **{name: given[name] for name in self._takes})
        if self._tried.facts.predicts_numbers and tuple(outputs.shape[1:]) == (1,):
            return tf.squeeze(outputs, axis=-1)
        return outputs

    def embed(self, x: Any) -> Any:
        """Returns the representation below the last layer: [batch, dim], or of each token."""
        if hasattr(self._model, "embed"):
            made = self._model.embed(x)
        elif self._parts.num_below is not None:
            made = tf.convert_to_tensor(x)
            for layer in self._model.layers[: self._parts.num_below]:
                made = layer(made)
            made = tf.cast(made, tf.float32)
        else:
            expected = "the representation below the last layer, for kNN-Per"
            method = "a method embed(self, x) that returns it, and let call begin with it"
            raise self._tried.fail(expected, f"give the model {method}")
        is_of_tokens = self._tried.facts.num_ids is not None and len(made.shape) == 3
        return made if is_of_tokens or len(made.shape) == 2 else _flat(made)


def _flat(x: Any) -> Any:
    return tf.reshape(x, [-1, tf.TensorShape(x.shape[1:]).num_elements()])


def _layers(model: Any) -> list[Any]:
    """Returns all layers below a model, in a fixed order."""
    return list(model._flatten_layers(include_self=False))


def _last_layer(model: Any, created: list[_Created]) -> int:
    """Returns the number of the innermost layer that the last weight belongs to."""
    last = id(created[-1].variable)
    owners = [
        (len(layer.variables), -number)
        for number, layer in enumerate(_layers(model))
        if any(id(v) == last for v in layer.variables)
    ]
    return -min(owners)[1] if owners else 0


def _has_placeholders(model: Any) -> bool:
    """Whether it is of the functional API, or a Sequential that knows its shape beforehand."""
    is_graph = getattr(model, "_is_graph_network", False)
    return is_graph and getattr(model, "_has_explicit_input_shape", True)


def _num_below(model: Any) -> int | None:
    if not isinstance(model, tf.keras.Sequential):
        return None
    return max(i for i, layer in enumerate(model.layers) if layer.variables)


def _is_small_and_dense(model: Any) -> bool:
    """Whether it is a Sequential of dense layers, which are faster with clients stacked."""
    kinds = {type(layer).__name__ for layer in getattr(model, "layers", ())}
    is_plain = isinstance(model, tf.keras.Sequential)
    return is_plain and kinds <= {"Activation", "Dense", "Flatten", "LayerNormalization", "ReLU"}


def _are_close(a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


def _kind(value: Any) -> str:
    if tf.is_tensor(value):
        return f"a {value.dtype.name} tensor"
    return "None" if value is None else f"a {type(value).__name__}"


def _dims(*dims: int) -> str:
    return f"[{', '.join(['batch', *map(str, dims)])}]"


def _shape(x: Any) -> str:
    return f"{_dims(*x.shape[1:])} of {np.asarray(x).dtype}"
