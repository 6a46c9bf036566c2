"""Plug-ins: what installed packages add to this one, found by their entry points.

A package names what it has in its metadata, so that names are known before anything of it is
imported. This project's own data sets are entry points as well, but no plug-ins.
"""

import functools
import importlib.metadata
import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from motley_tff.core.errors import UserError

# Groups of entry points, `name=module:object`.
DATASETS, ALGORITHMS = "motley_tff.datasets", "motley_tff.algorithms"
# What only this project has: `html`, which draws runs, and `compare`, which makes several.
REPORTS = "motley_tff.reports"
_WHAT = {DATASETS: "data set", ALGORITHMS: "algorithm", REPORTS: "report"}
_OURS = "motley-tff"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Plugin(NamedTuple):
    """One entry point of a package.

    Attributes:
      name: What flags, tables and reports call it.
      point: The entry point.
      package: The distribution's name.
      version: The distribution's version.
      problem: Why it cannot be used, known without importing it: what `error` says; empty if
        nothing is wrong.
    """

    name: str
    point: importlib.metadata.EntryPoint
    package: str
    version: str
    problem: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """Package and version, as run.json has them."""
        return f"{self.package} {self.version}"

    def error(self, finding: str | None, expected: str = "", advice: str = "") -> UserError:
        """Returns an error that names the package and the entry point."""
        entry = f"{_WHAT[self.point.group]} {self.name!r} ({self.point.value})"
        return UserError(f"plug-in {self.origin}, {entry}", finding, expected, advice)

    def load(self) -> Any:
        """Imports and returns the object; UserError with the reason if that is not possible."""
        if self.problem:
            raise self.error(*self.problem)
        try:
            return self.point.load()
        except Exception as error:  # Whatever its code raises.
            finding = f"no way to import it ({described(error)})"
            raise self.error(finding, advice="mend the package, or uninstall it") from error


def described(error: BaseException, file: str = "") -> str:
    """Returns an error of others' code in a line: its type, its words, the file and the line, which
    are those of `file` if it has a part in it.
    """
    words = " ".join(str(error).split())
    place = ""
    if frames := traceback.extract_tb(error.__traceback__):
        frame = next((f for f in reversed(frames) if f.filename == file), frames[-1])
        place = f" ({frame.filename} line {frame.lineno})"
    return f"{type(error).__name__}: {words}{place}" if words else f"{type(error).__name__}{place}"


@functools.cache
def installed(group: str) -> Mapping[str, Plugin]:
    """Returns the plug-ins of a group by name, sorted; `installed.cache_clear()` looks anew."""
    points_of: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for point in importlib.metadata.entry_points(group=group):
        if _package(point) != _OURS:
            points_of.setdefault(point.name, []).append(point)
    return {name: _plugin(points) for name, points in sorted(points_of.items())}


def ours(group: str) -> Mapping[str, Plugin]:
    """Returns this project's own entry points of a group by name."""
    points = importlib.metadata.entry_points(group=group)
    return {point.name: _plugin([point]) for point in points if _package(point) == _OURS}


def _plugin(points: list[importlib.metadata.EntryPoint]) -> Plugin:
    point = points[0]
    problem: tuple[str, ...] = ()
    if len(points) > 1:
        packages = " and ".join(sorted(_package(p) for p in points))
        problem = f"one of this name in {packages}", "one alone", "uninstall one"
    elif not _NAME.fullmatch(point.name):
        expected = "a name of small letters, digits and '_'"
        problem = repr(point.name), expected, "rename the entry point"
    version = point.dist.version if point.dist is not None else ""
    return Plugin(point.name, point, _package(point), version or "unknown", problem)


def _package(point: importlib.metadata.EntryPoint) -> str:
    name = point.dist.name if point.dist is not None else ""
    return re.sub(r"[-_.]+", "-", name or "unknown").lower()


def check_not_ours(plugin: Plugin | None, ours: Iterable[str]) -> None:
    """Raises UserError if a plug-in has a name that this project's own have."""
    if plugin is not None and plugin.name in ours:
        advice = f"rename the entry point, or uninstall {plugin.package}"
        raise plugin.error("the name of one of this project's own", "another", advice)
