"""A value that a user can set stands in one place: no default, bound or choice stands twice. Flags
are read once: in `trainers/config.py`, and at the top of each other command's `main`.
"""

import ast
import dataclasses
import re

import pytest

from datasets.options import DataOptions, GeneratorOptions
from launch import flag_table
from motley_tff import algorithms, generative
from motley_tff.core import options
from motley_tff.experiment import config
from tests import sources
from trainers.algorithm_flags import ExperimentOptions

_KINDS = (
    *algorithms.TRAINING.values(), *algorithms.PERSONALIZATIONS.values(),
    *generative.KINDS.values(), DataOptions, GeneratorOptions, ExperimentOptions,
    config.LoopConfig, config.EvaluationConfig, config.BackendConfig, config.WarmStartConfig,
    config.RunConfig,
)  # fmt: skip
# Fields that no user sets.
_DERIVED = {"dataset_name", "is_central", "initial_models", "algorithm", "personalization"}
_OPTIONS = {option.field: option for kind in _KINDS for option in options.options(kind)}
# Arguments that are called like an option and are something else.
_OTHER_ARGUMENTS = {
    "name": "a command's, a table's, a scorer's",
    "strength": "of any penalty; 0 is none",
    "trim_share": "of a mean that is not trimmed",
    "tuning": "what `EvaluationConfig.choice` is told of the algorithm",
    "experiment_name": "Python's folder",
    "num_clients": "of a picture",
    "min_examples": "of one draw",
    "model": "whose scores a table of the report has",
    "setting": "of a function that is told of silos",
}


@pytest.mark.parametrize("kind", _KINDS)
def test_what_a_user_can_set_is_an_option(kind):
    for field in dataclasses.fields(kind):
        is_config = dataclasses.is_dataclass(field.default) or field.name in _DERIVED
        assert is_config or {"option", "expand"} & field.metadata.keys(), field.name


# What parses command lines, and what turns the trainers' flags into a configuration.
_READERS_OF_FLAGS = (
    "motley_tff/commandline/",
    "trainers/config.py",
    "trainers/algorithm_flags.py",
    "trainers/option_flags.py",
    "trainers/optimizer_flags.py",
    "trainers/published_flags.py",
    "launch/benchmarks/measuring.py",  # A child's empty command line.
    "launch/experiments/",  # Scripts, each a file that is read from top to bottom.
)


def _defaults(function):
    """Yields (argument, default) of a function's syntax tree."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if arguments.defaults:
        yield from zip(positional[-len(arguments.defaults) :], arguments.defaults, strict=True)
    yield from (
        pair for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if pair[1]
    )


def _repeated_defaults():
    for name, function in sources.functions():
        for argument, default in _defaults(function):
            is_literal = isinstance(default, ast.Constant) and default.value is not None
            is_option = argument.arg in _OPTIONS.keys() - _OTHER_ARGUMENTS.keys()
            if is_option and is_literal and not isinstance(default.value, bool):
                yield f"{name}:{default.lineno} {argument.arg}={default.value}"


def _repeated_choices():
    """Yields places where the words of an option's choices stand in code, a second time."""
    choices = {frozenset(o.choices): o for o in _OPTIONS.values() if len(o.choices) > 1}
    places = {}
    for name, tree in sources.trees().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                words = [e.value for e in node.elts if isinstance(e, ast.Constant)]
                is_words = len(words) == len(node.elts) and all(isinstance(w, str) for w in words)
                if is_words and frozenset(words) in choices:
                    places.setdefault(frozenset(words), []).append(f"{name}:{node.lineno}")
    del choices[frozenset({"best", "last"})]  # Rounds that are reported, and PersFL's teachers.
    for words, where in places.items():
        if len(where) > 1 and words in choices:
            yield sorted(words), where


def test_no_argument_repeats_a_default():
    assert list(_repeated_defaults()) == []


def test_choices_stand_once():
    assert list(_repeated_choices()) == []


def test_no_help_repeats_a_default():
    """Texts that have a default have it from where it stands."""
    for name, tree in sources.trees().items():
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and name.endswith(("options.py", "config.py", "_flags.py")):
                assert not re.search(r"default: -?\.?\d", node.value), (name, node.lineno)


def test_trainers_declare_no_flag_by_hand():
    by_hand = [
        f"{name}:{node.lineno}"
        for name, tree in sources.trees().items()
        if name.startswith("trainers/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("DEFINE_")
    ]
    # What makes a flag of an option, and second names.
    assert {place.partition(":")[0] for place in by_hand} == {
        "trainers/option_flags.py", "trainers/optimizer_flags.py",
    }  # fmt: skip


def test_no_dataclass_has_bounds_beside_its_options():
    assert [name for name, tree in sources.trees().items() if "BOUNDS" in ast.dump(tree)] == []


def test_the_table_of_flags_is_current():
    assert flag_table.PATH.read_text() == flag_table.text(), "python -m launch.flag_table"


def _mentions(node, *names):
    """Returns whether code mentions one of these names or attributes."""
    return any({getattr(n, "id", ""), getattr(n, "attr", "")} & {*names} for n in ast.walk(node))


def test_only_a_commands_main_reads_flags():
    assert [
        f"{path}:{function.lineno} {function.name}"
        for path, function in sources.functions()
        if not isinstance(function, ast.Lambda) and not path.startswith(_READERS_OF_FLAGS)
        if function.name != "main" and _mentions(function, "FLAGS")
    ] == []


def test_no_function_takes_flag_values():
    assert [
        f"{path}:{function.lineno} {argument.arg}"
        for path, function in sources.functions()
        for argument in sources.arguments(function)
        if argument.annotation and _mentions(argument.annotation, "FlagValues", "FlagHolder")
    ] == []
