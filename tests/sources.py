"""The product's modules as syntax trees, for tests that read the code."""

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).parents[1]


@functools.cache
def trees():
    """Returns `{path from the project's root: tree}` of every module."""
    folders = ("motley_tff", "datasets", "trainers", "launch")
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


def functions():
    """Yields (path, function) of every function and lambda."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    for path, tree in trees().items():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, kinds))


def arguments(function):
    """Returns a function's arguments but for `*` and `**`."""
    its = function.args
    return [*its.posonlyargs, *its.args, *its.kwonlyargs]
