"""The model of a user's data: one that the data set offers, by name, or the user's own."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from datasets.models import users_model
from datasets.models.users_model import ModelFacts as ModelFacts
from datasets.options import DataOptions
from motley_tff.core import errors, functional_model
from motley_tff.core.errors import UserError

_SIZES = errors.name("model_sizes")


class Architecture(NamedTuple):
    """A model that a data set offers.

    Attributes:
      create: `(facts, sizes of its layers or None for its defaults)` -> a Keras model by the rules
        of `functional_model`.
      sizes: What the sizes are, in words; empty if it has none.
      num_sizes: How many there are; None for one or more.
    """

    create: Callable[[ModelFacts, Sequence[int] | None], tf.keras.Model]
    sizes: str = ""
    num_sizes: int | None = 0


def build(
    options: DataOptions,
    offered: Mapping[str, Architecture],
    facts: ModelFacts,
    example_input: Any,
) -> functional_model.FunctionalModel:
    """Returns the model that `model` names, the first one offered if it names none; UserError if
    it is not offered, or does not take the sizes, or is the user's own and breaks a rule.
    """
    name = options.model or next(iter(offered))
    if users_model.is_named(name):
        if options.model_sizes is not None:
            expected = f"a model that takes sizes ({', '.join(offered)}), not {name}"
            raise UserError(_SIZES, options.model_sizes, expected, "leave it out")
        return users_model.build(name, facts, example_input)
    if name not in offered:
        kinds = f"one of {', '.join(offered)}, which {options.dataset_name} offers here"
        expected = f"{kinds}, or module:function, a model of your own"
        raise UserError(errors.name("model"), name, expected)
    _check_sizes(name, offered[name], options.model_sizes)
    create = functools.partial(offered[name].create, facts, options.model_sizes)
    return functional_model.from_keras(create, example_input)


def _check_sizes(name: str, architecture: Architecture, sizes: Sequence[int] | None) -> None:
    if sizes is None or architecture.num_sizes in (None, len(sizes)):
        return
    if not architecture.sizes:
        expected = f"none, as {name} has no layer of a size"
        raise UserError(_SIZES, sizes, expected, "leave it out")
    expected = f"{architecture.num_sizes} for {name}: {architecture.sizes}"
    raise UserError(_SIZES, sizes, expected)
