"""Imports go down or stay: between the top folders, and between the packages of `motley_tff`."""

import ast
import functools
import graphlib

from tests import sources

# Ground floor first. A module may import from its own floor and from those below.
FLOORS = (
    "motley_tff.core",
    "motley_tff.commandline",
    "motley_tff.files",
    "motley_tff.metrics",
    "motley_tff.tables",
    "motley_tff.algorithms",
    "motley_tff.generative",
    "motley_tff.backends",
    "motley_tff.evaluation",
    "motley_tff.experiment",
    "motley_tff.interface",
    "datasets.label_partition",
    "datasets.options",
    "datasets.packages",
    "datasets.readers",
    "datasets.partition",
    "datasets.synthetic",
    "datasets.models",
    "datasets.kinds",
    "datasets.prepare",
    "datasets",
    "trainers",
    "launch",
)


@functools.cache
def _modules():
    """Returns `{module: (path, tree)}`."""
    return {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): (path, tree)
        for path, tree in sources.trees().items()
        if path != "motley_tff/__init__.py"  # What the library is: its version.
    }


def _imports(tree):
    """Yields (line, module) of what a file imports of ours, also inside functions."""
    modules = _modules()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in modules else node.module
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name


def _floor(module):
    """Returns a module's floor, or None if it is none of ours."""
    within = [floor for floor in FLOORS if f"{module}.".startswith(f"{floor}.")]
    return max(within, key=len, default=None)


def upward_imports():
    """Yields a line for every import of a higher floor."""
    for module, (path, tree) in _modules().items():
        for line, imported in _imports(tree):
            here, there = _floor(module), _floor(imported)
            if there and FLOORS.index(there) > FLOORS.index(here):
                yield f"{path}:{line}: {imported}"


def test_every_module_is_on_a_floor():
    assert [name for name in _modules() if _floor(name) is None] == []


def test_imports_go_down():
    assert list(upward_imports()) == []


def test_no_module_imports_itself_through_others():
    """Imports inside functions and for types count; a circle is an error that lists it."""
    modules = _modules()
    imports = {
        module: {there for _, there in _imports(tree)} & modules.keys() - {module}
        for module, (_, tree) in modules.items()
    }
    graphlib.TopologicalSorter(imports).prepare()


def test_data_sets_stand_at_the_top_of_their_folder():
    assert len(list((sources.ROOT / "datasets").glob("*.py"))) <= 24
