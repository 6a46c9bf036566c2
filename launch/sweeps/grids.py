"""Reads a grid: a small YAML file that says which trainer to call with which flags.

    algorithm: ditto              # what the tables call it
    dataset: school
    trainer: mtl_trainer
    fixed:                        # flags of every run
      total_rounds: 500
    inside:                       # flags that take a list, searched inside a run
      finetune_learning_rate: [0.001, 0.01]
    grid:                         # flags with the values to try: a run for each combination
      client_learning_rate: [0.001, 0.003]
    settings:                     # flags that go together, in place of fixed ones: a run for each
      - {algorithm: fedsgd, train_epochs: 1}     # (and each combination)
    choose_by: personalized       # whose validation mean chooses the setting, `baseline`, or
                                  # `nothing`: then best.csv has no rows
    paper:                        # optional, shown beside what came out
      source: Table 7
      best: {client_learning_rate: 0.001}
      personalized_mean: [0.0114, 0.0002]    # and its std over seeds

Values stay the text that was written: that is what trainers and tables get. Where the grid has
several optimizers, fixed flags of one are for the runs that choose it.
"""

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import itertools
import math
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import yaml
from absl import flags

import datasets
from motley_tff import algorithms, commandline
from motley_tff.core import errors, options
from motley_tff.core.errors import UserError
from motley_tff.tables import columns
from trainers import TRAINERS, algorithm_flags, optimizer_flags, option_flags, published_flags

_REQUIRED = ("algorithm", "dataset", "trainer")
SECTIONS = ("fixed", "inside", "grid")
_KEYS = (*_REQUIRED, *SECTIONS, "settings", "choose_by", "paper")
NOTHING = "nothing"
_CHOOSE_BY = ("personalized", "baseline", NOTHING)
# What a sweep itself tells a trainer.
_SWEEP_FLAGS = frozenset(
    {"experiment_name", "root_output_dir", "dataset_name", "base_random_seed", "data_dir",
     "data_file", "use_synthetic_data", "tensorboard", "flagfile", "verbosity", "help"}
)  # fmt: skip
# Of a directory.
_LONGEST_NAME = 128
_OF_COMMAND_LINE = 0  # In place of a line of the file.
_FIXED = errors.name("fixed")
_LAUNCH = pathlib.Path(__file__).parents[1]
_SHIPPED = (_LAUNCH / "grids", _LAUNCH / "experiments")


@dataclasses.dataclass(frozen=True)
class Grid:
    """A grid as its file says; the module's docstring has its keys.

    Of `paper` it has `source`, `best` and, by statistic, its value and the value's std over seeds.
    """

    algorithm: str
    dataset: str
    trainer: str
    fixed: Mapping[str, str]
    inside: Mapping[str, tuple[str, ...]]
    grid: Mapping[str, tuple[str, ...]]
    settings: tuple[Mapping[str, str], ...] = ()
    choose_by: str = "personalized"
    paper: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def flags(self) -> dict[str, flags.Flag]:
        """Its trainer's flags, by their first names."""
        return {name: made.flag for name, made in algorithm_flags.make(self.trainer).items()}

    def parsed(self, flag: str, text: str) -> Any:
        """Returns the value of a flag's text; UserError if its trainer takes no such."""
        known = self.flags.get(optimizer_flags.first_name(flag))
        if known is None:
            advice = published_flags.advice(flag)
            advice = advice or commandline.similar_flag(flag, self.flags.values())
            raise UserError(f"--{flag}", f"no such flag of {self.trainer}", advice=advice)
        try:
            return known.parser.parse(text)
        except (TypeError, ValueError) as error:  # absl's own, of what is true or false.
            raise UserError(f"--{flag}", text, "true or false") from error

    def fixed_of(self, point: Mapping[str, str]) -> dict[str, str]:
        """Returns `fixed` without the flags of optimizers that a combination does not choose."""
        chosen = {**self.fixed, **point}
        return {
            flag: value
            for flag, value in self.fixed.items()
            if (parameter := optimizer_flags.parameter_behind(flag)) is None
            or _chosen(self.flags, parameter.choice, chosen) == parameter.optimizer
        }

    @property
    def num_points(self) -> int:
        """How many combinations there are."""
        return math.prod(map(len, self.grid.values())) * max(1, len(self.settings))

    @property
    def points(self) -> list[dict[str, str]]:
        """The combinations, `{flag: value}`; the last flag turns fastest."""
        combined = list(itertools.product(*self.grid.values()))
        return [
            {**setting, **dict(zip(self.grid, values, strict=True))}
            for setting in self.settings or ({},)
            for values in combined
        ]

    def selects_round(self, point: int) -> bool:
        """Returns whether a combination's runs report the round best on validation data."""
        flags = {**self.fixed, **self.points[point]}
        return "finetune_every" in flags or flags.get("reported_round") == "best"

    def described(self, point: int) -> dict[str, str]:
        """Returns what a combination has of the flags that any has; the default's are left out."""
        fixed = {flag: self.fixed[flag] for flag in self.tried if flag in self.fixed}
        return fixed | self.points[point]

    @property
    def tried(self) -> dict[str, tuple[str, ...]]:
        """The values that any combination has, by flag."""
        flags = dict.fromkeys(flag for setting in self.settings for flag in setting)
        of_settings = {
            flag: tuple(dict.fromkeys(s[flag] for s in self.settings if flag in s))
            for flag in flags
        }
        return {**of_settings, **self.grid}


# (line, flag, value) of what a trainer will be told
Given = list[tuple[int, str, str]]


def parse(path: pathlib.Path) -> tuple[Grid, Given]:
    """Returns the grid of a file, and its flags by line, which its trainer has yet to see.

    UserError, with the line where there is one, if the file cannot be read or is no grid.
    """
    reader = _Reader()
    with errors.at(path):
        return reader.grid(_compose(path)), reader.given


def read(path: pathlib.Path, fixed: Mapping[str, str] = MappingProxyType({})) -> Grid:
    """Returns a file's grid, with other values of `fixed`; what they name is searched no more.

    UserError as `parse`, and if the trainer refuses a flag or a value.
    """
    grid, given = parse(path)
    with errors.at("--fixed"):
        for flag in fixed:
            _refuse_sweeps_own(flag)
    inside, searched = (
        {flag: values for flag, values in of.items() if flag not in fixed}
        for of in (grid.inside, grid.grid)
    )
    settings = tuple(
        {f: v for f, v in setting.items() if f not in fixed} for setting in grid.settings
    )
    # Which settings that differed in nothing else have become equal to.
    settings = tuple(of for place, of in enumerate(settings) if of not in settings[:place])
    grid = dataclasses.replace(
        grid, fixed={**grid.fixed, **fixed}, inside=inside, grid=searched, settings=settings
    )
    given = [one for one in given if one[1] not in fixed]
    given += [(_OF_COMMAND_LINE, flag, value) for flag, value in fixed.items()]
    _check_flags(path, grid, given)
    with _at(path):
        _check_algorithms(grid)
    return grid


def _check_flags(path: pathlib.Path, grid: Grid, given: Given) -> None:
    for line, flag, value in given:
        with _at(f"{path}, --fixed" if line == _OF_COMMAND_LINE else f"{path} line {line}"):
            grid.parsed(flag, value)


@contextlib.contextmanager
def _at(place: object) -> Iterator[None]:
    """Puts a place before what errors inside say of theirs, and before a flag: here it has one."""
    try:
        yield
    except UserError as error:
        where = f"{place} {error.where}".rstrip()
        raise UserError(where, error.found, error.expected, error.advice) from error


def _refuse_sweeps_own(flag: str) -> None:
    if flag in _SWEEP_FLAGS:
        raise UserError(f"--{flag}", "what motley_sweep itself says", advice="leave it out")


def _chosen(known: Mapping[str, flags.Flag], choice: str, given: Mapping[str, str]) -> str | None:
    """Returns the optimizer that is given, or a trainer's default; None if it has no such."""
    return given.get(choice) or (known[choice].default if choice in known else None)


def fixed_flags(texts: Sequence[str]) -> dict[str, str]:
    """Returns `{flag: value}` of texts such as `partition=iid`; UserError if one is not such."""
    pairs = [text.lstrip("-").partition("=") for text in texts]
    for text, (flag, _, value) in zip(texts, pairs, strict=True):
        if not flag or not value:
            raise UserError(_FIXED, text, "FLAG=VALUE, such as total_rounds=20")
    flags_given = [flag for flag, _, _ in pairs]
    for flag in flags_given:
        if flags_given.count(flag) > 1:
            raise UserError(_FIXED, flag, "each flag once", "leave one of them out")
    return {flag: value for flag, _, value in pairs}


def directory_name(path: pathlib.Path, fixed: Mapping[str, str]) -> str:
    """Returns the name of its results' directory, `ditto.cifar10.partition_dirichlet_0.9`; of many
    flags the first, and a digest of all.
    """
    parts = (re.sub(r"[^A-Za-z0-9.]+", "_", f"{f} {v}").strip("_") for f, v in fixed.items())
    name = ".".join([path.stem, *parts])
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}.{digest}"


def _check_algorithms(grid: Grid) -> None:
    """Refuses optimizers under which a combination's algorithm would not be itself."""
    default, plain = algorithms.DEFAULTS.get(grid.trainer, ""), algorithms.FedAvg.check
    named = {grid.fixed.get("algorithm", default), *grid.tried.get("algorithm", ())}
    offered = algorithms.offered_by(grid.trainer).items()
    picky = {name: kind for name, kind in offered if name in named and kind.check is not plain}
    if not picky:
        return
    parts = (o for kind in picky.values() for o in options.options(kind, grid.trainer))
    deciding = {"algorithm", *(option.name.flag for option in parts if not option.field)}
    searched = {f: v for f, v in grid.grid.items() if optimizer_flags.first_name(f) in deciding}
    for setting, texts in itertools.product(
        grid.settings or ({},), itertools.product(*searched.values())
    ):
        point = {**setting, **dict(zip(searched, texts, strict=True))}
        given = {**grid.fixed_of(point), **point}
        name = given.get("algorithm", default)
        if name in picky:
            values = {
                optimizer_flags.first_name(flag): grid.parsed(flag, text)
                for flag, text in given.items()
            }
            option_flags.value_of(picky[name], values, grid.trainer).check()


def _compose(path: pathlib.Path) -> yaml.Node:
    expected = "a grid's YAML file"
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        shipped = {p.stem: os.path.relpath(p) for d in _SHIPPED for p in d.rglob("*.yaml")}
        near = difflib.get_close_matches(path.name.removesuffix(".yaml"), shipped, 1)
        advice = f"did you mean {shipped[near[0]]}?" if near else ""
        raise UserError("", f"nothing to read ({error.strerror})", expected, advice) from error
    except (UnicodeDecodeError, RecursionError) as error:
        is_deep = isinstance(error, RecursionError)
        found = "mappings that nest far too deeply" if is_deep else f"no UTF-8 text ({error})"
        raise UserError("", found, expected) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or error
        where = f"line {mark.line + 1}" if mark else ""
        raise UserError(where, f"no YAML ({problem})", expected) from error
    if node is None:
        raise UserError("", "an empty file", f"the keys {', '.join(_REQUIRED)} and grid")
    return node


def _near(word: str, words: Iterable[str]) -> str:
    """Returns a question about the word that is meant, or an empty string."""
    return "".join(f"did you mean {n}?" for n in difflib.get_close_matches(word, words, 1))


class _Reader:
    """Turns nodes into a grid, and remembers on which line each flag stands.

    A UserError says the line.
    """

    def __init__(self) -> None:
        self.given: Given = []
        self._of_settings: Given = []
        self._sections: dict[str, str] = {}  # {flag: the section that gives it}

    def grid(self, node: yaml.Node) -> Grid:
        """Returns the whole document's grid."""
        keys = self._mapping(node, "the grid", _KEYS)
        for key in _REQUIRED:
            if key not in keys:
                raise UserError("", f"no key {key}", f"the keys {', '.join(_REQUIRED)}")
        text: dict[str, Any] = {key: self._scalar(keys[key], key) for key in _REQUIRED}
        self._one_of(keys["trainer"], "trainer", TRAINERS)
        with _at(_line(keys["dataset"])):
            datasets.check_name(text["dataset"])
        self._flags = {n: made.flag for n, made in algorithm_flags.make(text["trainer"]).items()}
        sections: dict[str, Any] = {name: self._section(name, keys.get(name)) for name in SECTIONS}
        settings = self._settings(keys.get("settings"), sections["fixed"])
        if not sections["grid"] and not sections["inside"] and not settings:
            raise UserError("grid", None, "a flag and its values")
        self._check_optimizers(sections, settings)
        self.given += self._of_settings
        choose_by = "personalized"
        if "choose_by" in keys:
            choose_by = self._one_of(keys["choose_by"], "choose_by", _CHOOSE_BY)
        paper = self._paper(keys["paper"]) if "paper" in keys else {}
        return Grid(**text, **sections, settings=settings, choose_by=choose_by, paper=paper)

    def _mapping(
        self, node: yaml.Node, what: str, known: Iterable[str] | None = None
    ) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode) or not node.value:
            raise UserError(f"{_line(node)} {what}", None, "lines of key: value")
        nodes: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = self._scalar(key_node, "a key")
            if known is not None and key not in known:
                expected = f"one of {', '.join(known)}"
                raise UserError(_line(key_node), f"key {key}", expected, _near(key, known))
            if key in nodes:
                raise UserError(_line(key_node), f"a second {key}", advice="leave one of them out")
            nodes[key] = value
        return nodes

    def _scalar(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null") or not node.value:
            raise UserError(f"{_line(node)} {what}", None, "one value")
        return str(node.value)

    def _list(self, node: yaml.Node, what: str) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise UserError(f"{_line(node)} {what}", None, "a list of values, such as [0.01, 0.1]")
        values = tuple(self._scalar(item, what) for item in node.value)
        for i, value in enumerate(values):
            if number(value) in {number(other) for other in values[:i]}:
                where = f"{_line(node.value[i])} {what}"
                raise UserError(where, f"{value} a second time", advice="leave one of them out")
        return values

    def _one_of(self, node: yaml.Node, what: str, allowed: tuple[str, ...]) -> str:
        value = self._scalar(node, what)
        if value not in allowed:
            expected = f"one of {', '.join(allowed)}"
            raise UserError(f"{_line(node)} {what}", value, expected, _near(value, allowed))
        return value

    def _section(self, name: str, node: yaml.Node | None) -> dict[str, Any]:
        """Returns `{flag: value}` of `fixed`, `{flag: values}` of the others."""
        if node is None:
            return {}
        result: dict[str, Any] = {}
        for flag, value in self._mapping(node, name).items():
            self._check_place(value, flag, name, self._sections.setdefault(flag, name))
            values = (self._scalar(value, flag),) if name == "fixed" else self._list(value, flag)
            result[flag] = values[0] if name == "fixed" else values
            texts = [",".join(values)] if name == "inside" else values
            self.given.extend((value.start_mark.line + 1, flag, text) for text in texts)
        return result

    def _check_place(self, node: yaml.Node, flag: str, section: str, other: str) -> None:
        """Refuses a flag that a sweep gives itself, or that stands in another section."""
        with errors.at(_line(node)):
            _refuse_sweeps_own(flag)
            if other != section:
                found = f"it in {other} and in {section}"
                raise UserError(f"--{flag}", found, advice="leave one of them out")

    def _settings(
        self, node: yaml.Node | None, fixed: Mapping[str, str]
    ) -> tuple[dict[str, str], ...]:
        """Returns flags that go together; each may take the place of a fixed one."""
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise UserError(f"{_line(node)} settings", None, "a list of mappings of flags")
        settings: list[dict[str, str]] = []
        for item in node.value:
            values = {
                flag: self._scalar(value, flag)
                for flag, value in self._mapping(item, "a setting").items()
            }
            if values in settings:
                raise UserError(_line(item), "a setting a second time", advice="leave one out")
            for flag in values:
                other = self._sections.get(flag, "fixed")
                self._check_place(item, flag, "settings", "settings" if other == "fixed" else other)
                parameter = optimizer_flags.parameter_behind(flag)
                if parameter is not None:
                    name = _chosen(self._flags, parameter.choice, {**fixed, **values})
                    _check_chosen(_line(item), flag, parameter, (name,))
            self._of_settings += [(item.start_mark.line + 1, *one) for one in values.items()]
            settings.append(values)
        return tuple(settings)

    def _check_optimizers(
        self, sections: Mapping[str, Mapping[str, Any]], settings: Sequence[Mapping[str, str]]
    ) -> None:
        """Refuses flags of an optimizer that no run chooses, or, in `grid`, not every run."""
        names: dict[str, str] = {}
        for line, flag, _ in self.given:
            parameter = optimizer_flags.parameter_behind(flag)
            if parameter is None:
                continue
            choice, name = parameter.choice, optimizer_flags.first_name(flag)
            if names.setdefault(name, flag) != flag:
                found = f"--{names[name]}, its other name, too"
                raise UserError(f"line {line} --{flag}", found, advice="leave one of them out")
            fixed = _chosen(self._flags, choice, sections["fixed"])
            others = (setting[choice] for setting in settings if choice in setting)
            chosen = tuple(dict.fromkeys(sections["grid"].get(choice, (fixed, *others))))
            _check_chosen(f"line {line}", flag, parameter, chosen, flag in sections["grid"])

    def _paper(self, node: yaml.Node) -> dict[str, Any]:
        result: dict[str, Any] = {}
        known = ("source", "best", *columns.STATISTICS)
        for key, value in self._mapping(node, "paper", known).items():
            if key == "source":
                result[key] = self._scalar(value, key)
            elif key == "best":
                best = self._mapping(value, key)
                result[key] = {flag: self._scalar(choice, flag) for flag, choice in best.items()}
            else:
                result[key] = self._mean_and_std(value, key)
        return result

    def _mean_and_std(self, node: yaml.Node, what: str) -> list[float]:
        is_list = isinstance(node, yaml.SequenceNode)
        numbers = [number(self._scalar(n, what)) for n in (node.value if is_list else [node])]
        if not 1 <= len(numbers) <= 2 or not all(isinstance(n, float) for n in numbers):
            raise UserError(f"{_line(node)} {what}", None, "[mean, std over seeds]")
        return [float(n) for n in numbers]


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


def _check_chosen(
    line: str, flag: str, parameter: optimizer_flags.Parameter, chosen: Sequence[str | None],
    by_all: bool = False,
) -> None:  # fmt: skip
    """Refuses an optimizer's parameter that is not chosen, or, if it has to be, not by all runs;
    where its trainer has no such optimizer the flag is unknown, which is said later.
    """
    if None in chosen or (parameter.optimizer in chosen and not (by_all and len(chosen) > 1)):
        return
    found = f"--{parameter.choice}={' or '.join(map(str, chosen))}"
    advice = f"leave it out, or make a grid of {parameter.optimizer} alone"
    raise UserError(f"{line} --{flag}", found, parameter.optimizer, advice)


def number(text: str) -> float | str:
    """Returns the number that a text is, or the text."""
    try:
        return float(text)
    except ValueError:
        return text
