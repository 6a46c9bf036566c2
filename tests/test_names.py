"""Names are nouns of the field, and a class's name is that of one class."""

import ast
import collections

from tests import sources

# They say nothing of the thing that they name.
_RIDDLES = {"of", "found", "made", "given", "wanted", "told", "what", "how", "one"}


def riddles(tree):
    """Yields (line, name) of each variable, argument or field that is a pronoun or a participle."""
    for node in ast.walk(tree):
        is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        name = node.id if is_stored else getattr(node, "arg", None)
        if name in _RIDDLES and (is_stored or isinstance(node, ast.arg)):
            yield node.lineno, name


def test_riddles_are_seen():
    code = (
        "def f(of, *, made=1):\n    for one in of:\n        how: int = 1\nclass A:\n    told: int\n"
    )
    seen = sorted(name for _, name in riddles(ast.parse(code)))
    assert seen == ["how", "made", "of", "one", "told"]


def test_no_name_is_a_riddle():
    assert [(path, *r) for path, tree in sources.trees().items() for r in riddles(tree)] == []


def test_one_class_a_name():
    files = collections.defaultdict(list)
    for path, tree in sources.trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name.lstrip("_").lower()].append(path)
    assert {name: paths for name, paths in files.items() if len(paths) > 1} == {}
