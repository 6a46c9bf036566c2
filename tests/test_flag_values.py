"""Flags are read once: in `trainers/config.py`, and at the top of each other command's `main`."""

import ast
import pathlib

_ROOT = pathlib.Path(__file__).parents[1]
_FOLDERS = ("motley_tff", "datasets", "trainers", "launch")
# What parses command lines, and what turns the trainers' flags into a configuration.
_READERS = (
    "motley_tff/commandline/",
    "trainers/config.py",
    "trainers/algorithm_flags.py",
    "trainers/option_flags.py",
    "trainers/optimizer_flags.py",
    "trainers/published_flags.py",
    "launch/benchmarks/measuring.py",  # A child's empty command line.
    "launch/experiments/",  # Scripts, each a file that is read from top to bottom.
)


def _functions(tree):
    return [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _names(node):
    """Returns the names and attributes that code mentions."""
    return {
        *(n.id for n in ast.walk(node) if isinstance(n, ast.Name)),
        *(n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)),
    }


def readers_of_flags():
    """Yields `file:function` of every function but a command's `main` that reads flags."""
    for folder in _FOLDERS:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            name = path.relative_to(_ROOT).as_posix()
            if name.startswith(_READERS):
                continue
            for function in _functions(ast.parse(path.read_text())):
                if function.name != "main" and "FLAGS" in _names(function):
                    yield f"{name}:{function.lineno} {function.name}"


def takers_of_flag_values():
    """Yields `file:function` of every function with an argument that holds flags."""
    for folder in _FOLDERS:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            for function in _functions(ast.parse(path.read_text())):
                arguments = function.args
                for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                    if argument.annotation and {"FlagValues", "FlagHolder"} & _names(
                        argument.annotation
                    ):
                        name = path.relative_to(_ROOT).as_posix()
                        yield f"{name}:{function.lineno} {function.name}({argument.arg})"


def test_only_a_commands_main_reads_flags():
    assert list(readers_of_flags()) == []


def test_no_function_takes_flag_values():
    assert list(takers_of_flag_values()) == []
