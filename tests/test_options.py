"""A value that a user can set stands in one place: no default, bound or choice stands twice."""

import ast
import dataclasses
import pathlib
import re

import pytest

import motley_tff
from datasets.options import DataOptions, GeneratorOptions
from motley_tff import algorithms, generative
from motley_tff.core import options
from motley_tff.experiment import config
from trainers.algorithm_flags import ExperimentOptions

_ROOT = pathlib.Path(motley_tff.__file__).parents[1]
_KINDS = (
    *algorithms.TRAINING.values(), *algorithms.PERSONALIZATIONS.values(),
    *generative.KINDS.values(), DataOptions, GeneratorOptions, ExperimentOptions,
    config.LoopConfig, config.EvaluationConfig, config.BackendConfig, config.WarmStartConfig,
    config.RunConfig,
)  # fmt: skip
# Fields that no user sets.
_DERIVED = {"dataset_name", "is_central", "initial_models", "algorithm", "personalization"}
_OPTIONS = {option.field: option for kind in _KINDS for option in options.options(kind)}


def _trees():
    """Yields (path, tree) of the product's modules."""
    for folder in ("motley_tff", "datasets", "trainers", "launch"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            yield path.relative_to(_ROOT).as_posix(), ast.parse(path.read_text())


@pytest.mark.parametrize("kind", _KINDS)
def test_what_a_user_can_set_is_an_option(kind):
    for field in dataclasses.fields(kind):
        is_config = dataclasses.is_dataclass(field.default) or field.name in _DERIVED
        assert is_config or {"option", "expand"} & field.metadata.keys(), field.name


def _defaults(function):
    """Yields (argument, default) of a function's syntax tree."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if arguments.defaults:
        yield from zip(positional[-len(arguments.defaults) :], arguments.defaults, strict=True)
    yield from (pair for pair in zip(arguments.kwonlyargs, arguments.kw_defaults) if pair[1])


def _repeated_defaults():
    for name, tree in _trees():
        for function in ast.walk(tree):
            if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
                continue
            for argument, default in _defaults(function):
                option = _OPTIONS.get(argument.arg)
                is_literal = isinstance(default, ast.Constant) and default.value is not None
                if option and is_literal and not isinstance(default.value, bool):
                    yield f"{name}:{default.lineno} {argument.arg}={default.value}"


def test_no_argument_repeats_a_default():
    assert list(_repeated_defaults()) == []


def _repeated_choices():
    choices = {frozenset(o.choices): o for o in _OPTIONS.values() if len(o.choices) > 1}
    for name, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                words = [e.value for e in node.elts if isinstance(e, ast.Constant)]
                strings = all(isinstance(word, str) for word in words)
                if len(words) == len(node.elts) and strings and frozenset(words) in choices:
                    yield name, node.lineno, choices[frozenset(words)].field


def test_choices():
    for x in _repeated_choices():
        print(x)
    assert 0


def test_no_help_repeats_a_default():
    meanings = [option.meaning for kind in _KINDS for option in options.options(kind)]
    assert [words for words in meanings if re.search(r"default: -?\.?\d", words)] == []


def test_trainers_declare_no_flag_by_hand():
    by_hand = [
        f"{name}:{node.lineno}"
        for name, tree in _trees()
        if name.startswith("trainers/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("DEFINE_")
    ]
    print(by_hand)
