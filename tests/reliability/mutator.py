"""Small wrong changes of a program's source, one at a time: what good tests notice.

Comparisons, arithmetic and `and` are turned, conditions negated, `not` and `-` dropped, numbers
moved, `min` and its like swapped, results forgotten, statements left out. Left alone is what says
nothing about results: annotations, decorators, messages, and `strict=`, a check of our own.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_PAIRS = "min max, minimum maximum, any all, argmin argmax, mean median, floor ceil, rjust ljust"
_SWAPS = {a: b for pair in _PAIRS.split(",") for a, b in (pair.split(), pair.split()[::-1])}
_CONDITIONED = (ast.If, ast.While, ast.IfExp)


class Mutant(NamedTuple):
    """A wrong change.

    Attributes:
      line: Where it is.
      before: What stands there.
      after: What would stand there.
      apply: Makes the change in the tree that it was found in.
    """

    line: int
    before: str
    after: str
    apply: Callable[[], None]


class _Place(NamedTuple):
    """Where a node hangs: in a field of its owner, or in a list there."""

    owner: ast.AST
    field: str
    index: int | None

    def put(self, node: ast.AST) -> None:
        """Hangs another node there."""
        if self.index is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.index] = node


def mutants(tree: ast.Module) -> list[Mutant]:
    """Returns all changes of a module, in the order of its text."""
    found = [
        Mutant(node.lineno, _text(node), _text(other), lambda p=place, o=other: p.put(o))
        for place, node in _nodes(tree)
        for other in _others(place, node)
    ]
    return sorted(found, key=lambda mutant: mutant.line)


def _text(node: ast.AST) -> str:
    if isinstance(node, (ast.If, ast.While)):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


def _nodes(owner: ast.AST) -> Iterator[tuple[_Place, Any]]:
    """Yields what may be changed, and where it hangs."""
    for field, value in ast.iter_fields(owner):
        if field in ("annotation", "returns", "decorator_list", "exc", "format_spec"):
            continue
        many = isinstance(value, list)
        for index, node in enumerate(value if many else [value]):
            if isinstance(node, ast.AST) and not _is_left_alone(node):
                yield _Place(owner, field, index if many else None), node
                yield from _nodes(node)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    is_typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return is_typing or isinstance(node, (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom))


def _others(place: _Place, node: Any) -> Iterator[ast.AST]:
    """Yields what may stand in a node's place."""
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            for kind in _COMPARISONS[type(operator)]:
                yield _with(node, ops=[*node.ops[:i], kind(), *node.ops[i + 1 :]])
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield _with(node, op=_ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.AugAssign):
        yield _with(node, op=_ARITHMETIC[type(node.op)]())
        yield ast.copy_location(ast.Pass(), node)
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, _CONDITIONED) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        yield _with(node, test=_negated(node.test))
    elif isinstance(node, ast.Constant):
        for value in _near(node.value):
            yield _with(node, value=value)
    elif isinstance(node, ast.Name) and node.id in _SWAPS:
        yield _with(node, id=_SWAPS[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in _SWAPS:
        yield _with(node, attr=_SWAPS[node.attr])
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield _with(node, value=ast.copy_location(ast.Constant(None), node))
    elif _can_go(node):
        yield ast.copy_location(ast.Pass(), node)
    if isinstance(place.owner, ast.comprehension) and place.field == "ifs":
        yield _negated(node)


def _near(value: Any) -> tuple[Any, ...]:
    """Returns numbers near a constant."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1)
    if isinstance(value, float):
        return tuple(other for other in (value + 1.0, value / 2) if other != value)
    return ()


def _can_go(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):  # Without a name's value there is nothing but a NameError.
        return not any(isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets)
    return isinstance(node, (ast.Expr, ast.Raise, ast.Continue, ast.Break))


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _negated(node: ast.expr) -> ast.AST:
    return ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    """Returns a node like another, but for some fields."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
