"""Names are nouns of the field, and a class's name is that of one class."""

import ast
import collections
import pathlib

_ROOT = pathlib.Path(__file__).parents[1]
_FOLDERS = ("motley_tff", "trainers", "datasets", "launch")
# They say nothing of the thing that they name.
_RIDDLES = {"of", "found", "made", "given", "wanted", "told", "what", "how", "one"}


def _files():
    return [path for folder in _FOLDERS for path in (_ROOT / folder).rglob("*.py")]


def riddles(code):
    """Yields (line, name) of each variable, argument or field that is a pronoun or a participle."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        if name in _RIDDLES:
            yield node.lineno, name


def classes(paths):
    """Returns {name without underscore: files with a class of this name}."""
    files = collections.defaultdict(list)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files[node.name.lstrip("_").lower()].append(f"{path.relative_to(_ROOT)}")
    return files


def test_riddles_are_seen():
    code = (
        "def f(of, *, made=1):\n    for one in of:\n        how: int = 1\nclass A:\n    told: int\n"
    )
    assert sorted(name for _, name in riddles(code)) == ["how", "made", "of", "one", "told"]


def test_no_name_is_a_riddle():
    seen = [(f"{p.relative_to(_ROOT)}", *r) for p in _files() for r in riddles(p.read_text())]
    assert seen == []


def test_one_class_a_name():
    twice = {name: files for name, files in classes(_files()).items() if len(files) > 1}
    assert twice == {}
