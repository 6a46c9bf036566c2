"""Imports go down or stay: between the top folders, and between the packages of `motley_tff`."""

import ast
import graphlib
import pathlib

_ROOT = pathlib.Path(__file__).parents[1]
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


def _modules():
    for floor in dict.fromkeys(floor.partition(".")[0] for floor in FLOORS):
        for path in (_ROOT / floor).rglob("*.py"):
            parts = path.relative_to(_ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield name, path


def _imports(path, modules):
    """Yields (line, module) of what a file imports of ours, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
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
    modules = dict(_modules())
    del modules["motley_tff"]  # What the library is: its version.
    for module, path in modules.items():
        for line, imported in _imports(path, modules):
            here, there = _floor(module), _floor(imported)
            if there and _height(there) > _height(here):
                yield f"{path.relative_to(_ROOT)}:{line}: {imported}"


def _height(floor):
    return FLOORS.index(floor)


def circle():
    """Returns modules that import each other in a circle, functions' and types' imports counted;
    empty if none do.
    """
    modules = dict(_modules())
    del modules["motley_tff"]  # What the library is: its version.
    imports = {
        module: {there for _, there in _imports(path, modules)} & modules.keys() - {module}
        for module, path in modules.items()
    }
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_every_module_is_on_a_floor():
    assert [name for name, _ in _modules() if _floor(name) is None] == ["motley_tff"]


def test_imports_go_down():
    assert list(upward_imports()) == []


def test_no_module_imports_itself_through_others():
    assert circle() == []


def test_data_sets_stand_at_the_top_of_their_folder():
    assert len(list((_ROOT / "datasets").glob("*.py"))) <= 24
