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

import dataclasses
import difflib
import hashlib
import itertools
import math
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import yaml

import datasets
from launch.sweeps import flag_check
from motley_tff import algorithms
from motley_tff.core.errors import UserError
from motley_tff.tables import columns
from trainers import TRAINERS, optimizer_flags

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

    def fixed_of(self, point: Mapping[str, str]) -> dict[str, str]:
        """Returns `fixed` without the flags of optimizers that a combination does not choose."""
        return {
            flag: value
            for flag, value in self.fixed.items()
            if (of := optimizer_flags.parameter_behind(flag)) is None
            or {**self.fixed, **point}.get(of.choice, optimizer_flags.DEFAULT) == of.optimizer
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
    reader = _Reader(path)
    return reader.grid(_compose(path)), reader.flags


def read(path: pathlib.Path, fixed: Mapping[str, str] = MappingProxyType({})) -> Grid:
    """Returns a file's grid, with other values of `fixed`; what they name is searched no more.

    UserError as `parse`, and if the trainer refuses a flag or a value.
    """
    grid, given = parse(path)
    for flag in fixed:
        if flag in _SWEEP_FLAGS:
            raise UserError(f"--fixed={flag}=...: it is for motley_sweep to say; leave it out")
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
    complaint = flag_check.first_complaint(grid.trainer, grid.dataset, given)
    if complaint is not None:
        line, message = complaint
        where = f"{path}, --fixed" if line == _OF_COMMAND_LINE else f"{path} line {line}"
        raise UserError(f"{where}: {message}")
    _check_algorithm(path, grid)
    return grid


def fixed_flags(texts: Sequence[str]) -> dict[str, str]:
    """Returns `{flag: value}` of texts such as `partition=iid`; UserError if one is not such."""
    pairs = [text.lstrip("-").partition("=") for text in texts]
    for text, (flag, _, value) in zip(texts, pairs, strict=True):
        if not flag or not value:
            raise UserError(f"--fixed={text}: expected FLAG=VALUE, such as total_rounds=20")
    flags_given = [flag for flag, _, _ in pairs]
    for flag in flags_given:
        if flags_given.count(flag) > 1:
            raise UserError(f"--fixed: found {flag} more than once; leave one")
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


def _check_algorithm(path: pathlib.Path, grid: Grid) -> None:
    """Refuses optimizers under which a setting's algorithm would not be itself."""
    if grid.trainer != "mtl_trainer":
        return
    flags = {**{flag: (value,) for flag, value in grid.fixed.items()}, **grid.tried}
    pattern = re.compile(r"algorithm|(server|personal)_(optimizer|learning_rate|\w+_momentum)")
    relevant = {flag: values for flag, values in flags.items() if pattern.fullmatch(flag)}
    for values in itertools.product(*relevant.values()):
        point = dict(zip(relevant, values, strict=True))
        kind: Any = algorithms.TRAINING[point.get("algorithm", algorithms.DEFAULTS[grid.trainer])]
        server, personal = (_optimizer(prefix, point) for prefix in ("server", "personal"))
        try:
            kind(server_optimizer=server, personal_optimizer=personal).check()
        except UserError as error:
            raise UserError(f"{path}: {error}") from error


def _optimizer(prefix: str, texts: Mapping[str, str]) -> algorithms.OptimizerConfig:
    """Returns the optimizer of a grid's flags, with what algorithms check of it."""
    name = texts.get(f"{prefix}_optimizer", optimizer_flags.DEFAULT)
    momentum = texts.get(f"{prefix}_{name}_momentum")
    return algorithms.OptimizerConfig(
        name,
        float(texts.get(f"{prefix}_learning_rate", 1.0)),
        {} if momentum is None else {"momentum": float(momentum)},
    )


def _compose(path: pathlib.Path) -> yaml.Node:
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        shipped = {p.stem: os.path.relpath(p) for d in _SHIPPED for p in d.rglob("*.yaml")}
        near = difflib.get_close_matches(path.name.removesuffix(".yaml"), shipped, 1)
        hint = f"did you mean {shipped[near[0]]}?" if near else "expected a grid's YAML file"
        raise UserError(f"{path} cannot be read: {error.strerror}; {hint}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error}; expected YAML") from error
    except RecursionError as error:
        raise UserError(f"{path} nests far too deeply; expected a grid") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise UserError(f"{path}{where}: not YAML: {problem}") from error
    if node is None:
        raise UserError(f"{path} is empty; expected the keys {', '.join(_REQUIRED)} and grid")
    return node


def _near(word: str, words: Iterable[str]) -> str:
    """Returns a question about the word that is meant, or an empty string."""
    return "".join(f"did you mean {n}?" for n in difflib.get_close_matches(word, words, 1))


class _Reader:
    """Turns nodes into a grid, and remembers on which line each flag stands."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        self.flags: Given = []
        self._of_settings: Given = []
        self._sections: dict[str, str] = {}  # {flag: the section that gives it}

    def grid(self, node: yaml.Node) -> Grid:
        """Returns the whole document's grid."""
        keys = self._mapping(node, "the grid", _KEYS)
        missing = [key for key in _REQUIRED if key not in keys]
        if missing:
            raise UserError(f"{self._path}: missing keys: {', '.join(missing)}; give each")
        text: dict[str, Any] = {key: self._scalar(keys[key], key) for key in _REQUIRED}
        self._one_of(keys["trainer"], "trainer", TRAINERS)
        try:
            datasets.check_name(text["dataset"])
        except UserError as error:
            raise self._fail(keys["dataset"], str(error)) from error
        sections: dict[str, Any] = {name: self._section(name, keys.get(name)) for name in SECTIONS}
        settings = self._settings(keys.get("settings"), sections["fixed"])
        if not sections["grid"] and not sections["inside"] and not settings:
            raise UserError(f"{self._path}: the grid is empty; give grid: a flag and its values")
        self._check_optimizers(sections, settings)
        self.flags += self._of_settings
        choose_by = "personalized"
        if "choose_by" in keys:
            choose_by = self._one_of(keys["choose_by"], "choose_by", _CHOOSE_BY)
        paper = self._paper(keys["paper"]) if "paper" in keys else {}
        return Grid(**text, **sections, settings=settings, choose_by=choose_by, paper=paper)

    def _fail(self, node: yaml.Node, message: str) -> UserError:
        return UserError(f"{self._path} line {node.start_mark.line + 1}: {message}")

    def _mapping(
        self, node: yaml.Node, what: str, known: Iterable[str] | None = None
    ) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode) or not node.value:
            raise self._fail(node, f"{what} is empty or no mapping; expected lines of key: value")
        nodes: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = self._scalar(key_node, "a key")
            if known is not None and key not in known:
                hint = _near(key, known) or f"expected {', '.join(known)}"
                raise self._fail(key_node, f"unknown key {key}; {hint}")
            if key in nodes:
                raise self._fail(key_node, f"{key} stands here a second time; leave one")
            nodes[key] = value
        return nodes

    def _scalar(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null") or not node.value:
            raise self._fail(node, f"{what}: expected one value")
        return str(node.value)

    def _list(self, node: yaml.Node, what: str) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self._fail(node, f"{what}: expected a list of values, such as [0.01, 0.1]")
        values = tuple(self._scalar(item, what) for item in node.value)
        for i, value in enumerate(values):
            if number(value) in {number(other) for other in values[:i]}:
                raise self._fail(node.value[i], f"{what}: {value} stands in the list twice")
        return values

    def _one_of(self, node: yaml.Node, what: str, allowed: tuple[str, ...]) -> str:
        value = self._scalar(node, what)
        if value not in allowed:
            expected = f"{what}: {value}; expected one of {', '.join(allowed)}"
            raise self._fail(node, "; ".join(filter(None, (expected, _near(value, allowed)))))
        return value

    def _section(self, name: str, node: yaml.Node | None) -> dict[str, Any]:
        """Returns `{flag: value}` of `fixed`, `{flag: values}` of the others."""
        if node is None:
            return {}
        result: dict[str, Any] = {}
        for flag, value in self._mapping(node, name).items():
            if flag in _SWEEP_FLAGS:
                raise self._fail(
                    value, f"{name}: --{flag} is for motley_sweep to say; leave it out"
                )
            other = self._sections.setdefault(flag, name)
            if other != name:
                raise self._fail(value, f"{flag} is in {other} and in {name}; leave one")
            values = (self._scalar(value, flag),) if name == "fixed" else self._list(value, flag)
            result[flag] = values[0] if name == "fixed" else values
            line = value.start_mark.line + 1
            texts = [",".join(values)] if name == "inside" else values
            self.flags.extend((line, flag, text) for text in texts)
        return result

    def _settings(
        self, node: yaml.Node | None, fixed: Mapping[str, str]
    ) -> tuple[dict[str, str], ...]:
        """Returns flags that go together; each may take the place of a fixed one."""
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self._fail(node, "settings: expected a list of mappings of flags")
        settings: list[dict[str, str]] = []
        for item in node.value:
            values = {
                flag: self._scalar(value, flag)
                for flag, value in self._mapping(item, "a setting").items()
            }
            if values in settings:
                raise self._fail(item, "this setting stands in the list twice")
            for flag in values:
                if flag in _SWEEP_FLAGS:
                    raise self._fail(item, f"--{flag} is for motley_sweep to say; leave it out")
                if (other := self._sections.get(flag, "fixed")) != "fixed":
                    raise self._fail(item, f"{flag} is in {other} and in settings; leave one")
                of = optimizer_flags.parameter_behind(flag)
                name = {**fixed, **values}.get(of.choice) if of else None
                if of and of.optimizer != (name or optimizer_flags.DEFAULT):
                    raise self._fail(item, f"--{flag} is a flag of {of.optimizer}; leave it out")
            self._of_settings += [(item.start_mark.line + 1, *one) for one in values.items()]
            settings.append(values)
        return tuple(settings)

    def _check_optimizers(
        self, sections: Mapping[str, Mapping[str, Any]], settings: Sequence[Mapping[str, str]]
    ) -> None:
        """Refuses flags of an optimizer that no run chooses, or, in `grid`, not every run."""
        names: dict[str, str] = {}
        for line, flag, _ in self.flags:
            of = optimizer_flags.parameter_behind(flag)
            if of is None:
                continue
            fixed = sections["fixed"].get(of.choice, optimizer_flags.DEFAULT)
            of_settings = (s[of.choice] for s in settings if of.choice in s)
            chosen = sections["grid"].get(of.choice, (fixed, *of_settings))
            name = optimizer_flags.first_name(flag)
            if names.setdefault(name, flag) != flag:
                raise UserError(
                    f"{self._path} line {line}: --{names[name]} and --{flag} are two names of one "
                    "flag; leave one"
                )
            if of.optimizer not in chosen or (flag in sections["grid"] and len(chosen) > 1):
                raise UserError(
                    f"{self._path} line {line}: --{flag} is a flag of {of.optimizer}, but "
                    f"--{of.choice} is {' or '.join(chosen)}; leave it out, or make a grid of "
                    f"{of.optimizer} alone"
                )

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
            raise self._fail(node, f"{what}: expected [mean, std over seeds]")
        return [float(n) for n in numbers]


def number(text: str) -> float | str:
    """Returns the number that a text is, or the text."""
    try:
        return float(text)
    except ValueError:
        return text
