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
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

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


class Entry(NamedTuple):
    """What a file gives a flag: on which line, in which section, and beside which other flags of a
    setting. Line 0 is the command line's `--fixed`.
    """

    line: int
    section: str
    flag: str
    values: tuple[str, ...]
    setting: Mapping[str, str] = MappingProxyType({})


def parse(path: pathlib.Path) -> tuple[Grid, list[Entry]]:
    """Returns the grid of a file, and its entries, whose values its trainer has yet to see.

    UserError, with the line where there is one, if the file cannot be read or is no grid.
    """
    with errors.at(path):
        return _grid(_compose(path))


def read(path: pathlib.Path, fixed: Mapping[str, str] = MappingProxyType({})) -> Grid:
    """Returns a file's grid, with other values of `fixed`; what they name is searched no more.

    UserError as `parse`, and if the trainer refuses a flag or a value.
    """
    grid, entries = parse(path)
    with errors.at("--fixed"):
        for flag in fixed:
            _refuse_sweeps_own(flag)

    def left(values: Mapping[str, Any]) -> dict[str, Any]:
        return {flag: value for flag, value in values.items() if flag not in fixed}

    # Settings that differ in nothing else become one.
    settings = {tuple(left(setting).items()): left(setting) for setting in grid.settings}
    grid = dataclasses.replace(
        grid, fixed={**grid.fixed, **fixed}, inside=left(grid.inside), grid=left(grid.grid),
        settings=tuple(settings.values()),
    )  # fmt: skip
    entries = [entry for entry in entries if entry.flag not in fixed]
    entries += [Entry(0, "fixed", flag, (value,)) for flag, value in fixed.items()]
    for entry in entries:
        with _at(f"{path} line {entry.line}" if entry.line else f"{path}, --fixed"):
            is_list = entry.section == "inside"
            for text in [",".join(entry.values)] if is_list else entry.values:
                grid.parsed(entry.flag, text)
    with _at(path):
        _check_algorithms(grid)
    return grid


@contextlib.contextmanager
def _at(place: object) -> Iterator[None]:
    """Puts a place before what errors inside say of theirs, and before a flag: here it has one."""
    try:
        yield
    except UserError as error:
        where = f"{place} {error.where}".rstrip()
        raise UserError(where, error.finding, error.expected, error.advice) from error


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
    except UnicodeDecodeError as error:
        raise UserError("", f"no UTF-8 text ({error})", expected) from error
    except RecursionError as error:
        raise UserError("", "mappings that nest far too deeply", expected) from error
    except yaml.YAMLError as error:
        mark, problem = (getattr(error, name, None) for name in ("problem_mark", "problem"))
        where = f"line {mark.line + 1}" if mark else ""
        raise UserError(where, f"no YAML ({problem or error})", expected) from error
    if node is None:
        raise UserError("", "an empty file", f"the keys {', '.join(_REQUIRED)} and grid")
    return node


def _grid(node: yaml.Node) -> tuple[Grid, list[Entry]]:
    """Returns a document's grid and its entries, in the order of sections."""
    nodes = _mapping(node, "the grid", _KEYS)
    for key in _REQUIRED:
        if key not in nodes:
            raise UserError("", f"no key {key}", f"the keys {', '.join(_REQUIRED)}")
    about: dict[str, Any] = {key: _scalar(nodes[key], key) for key in _REQUIRED}
    _one_of(nodes["trainer"], "trainer", TRAINERS)
    with _at(_line(nodes["dataset"])):
        datasets.check_name(about["dataset"])
    if "choose_by" in nodes:
        about["choose_by"] = _one_of(nodes["choose_by"], "choose_by", _CHOOSE_BY)
    if "paper" in nodes:
        about["paper"] = _paper(nodes["paper"])
    entries = [entry for name in SECTIONS if name in nodes for entry in _section(name, nodes[name])]
    settings = _settings(nodes["settings"]) if "settings" in nodes else []
    sections: dict[str, Any] = {name: {} for name in SECTIONS}
    for entry in entries:
        is_one = entry.section == "fixed"
        sections[entry.section][entry.flag] = entry.values[0] if is_one else entry.values
    if not sections["grid"] and not sections["inside"] and not settings:
        raise UserError("grid", None, "a flag and its values")
    entries += [Entry(line, "settings", f, (v,), s) for line, s in settings for f, v in s.items()]
    grid = Grid(**about, **sections, settings=tuple(setting for _, setting in settings))
    _check_places(entries)
    _check_optimizers(grid, entries)
    return grid, entries


def _section(name: str, node: yaml.Node) -> Iterator[Entry]:
    for flag, value in _mapping(node, name).items():
        values = (_scalar(value, flag),) if name == "fixed" else _list(value, flag)
        yield Entry(value.start_mark.line + 1, name, flag, values)


def _settings(node: yaml.Node) -> list[tuple[int, dict[str, str]]]:
    """Returns flags that go together, with the line of each setting."""
    settings: list[tuple[int, dict[str, str]]] = []
    for item in _items(node, "settings", "a list of mappings of flags"):
        flags = {f: _scalar(value, f) for f, value in _mapping(item, "a setting").items()}
        if any(flags == other for _, other in settings):
            raise UserError(_line(item), "a setting a second time", advice="leave one out")
        settings.append((item.start_mark.line + 1, flags))
    return settings


def _paper(node: yaml.Node) -> dict[str, Any]:
    paper: dict[str, Any] = {}
    for key, value in _mapping(node, "paper", ("source", "best", *columns.STATISTICS)).items():
        if key == "source":
            paper[key] = _scalar(value, key)
        elif key == "best":
            paper[key] = {flag: _scalar(one, flag) for flag, one in _mapping(value, key).items()}
        else:
            parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
            paper[key] = [number(_scalar(part, key)) for part in parts]
            if not 1 <= len(parts) <= 2 or str in map(type, paper[key]):
                raise UserError(f"{_line(value)} {key}", None, "[mean, std over seeds]")
    return paper


def _mapping(
    node: yaml.Node, name: str, known: Sequence[str] | None = None
) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise UserError(f"{_line(node)} {name}", None, "lines of key: value")
    nodes: dict[str, yaml.Node] = {}
    for key_node, value in node.value:
        key = _scalar(key_node, "a key")
        if known is not None and key not in known:
            expected = f"one of {', '.join(known)}"
            raise UserError(_line(key_node), f"key {key}", expected, _near(key, known))
        if key in nodes:
            raise UserError(_line(key_node), f"a second {key}", advice="leave one of them out")
        nodes[key] = value
    return nodes


def _scalar(node: yaml.Node, name: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null") or not node.value:
        raise UserError(f"{_line(node)} {name}", None, "one value")
    return str(node.value)


def _items(node: yaml.Node, name: str, expected: str) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise UserError(f"{_line(node)} {name}", None, expected)
    return node.value


def _list(node: yaml.Node, name: str) -> tuple[str, ...]:
    values: dict[float | str, str] = {}
    for item in _items(node, name, "a list of values, such as [0.01, 0.1]"):
        value = _scalar(item, name)
        if number(value) in values:
            found = f"{value} a second time"
            raise UserError(f"{_line(item)} {name}", found, advice="leave one of them out")
        values[number(value)] = value
    return tuple(values.values())


def _one_of(node: yaml.Node, name: str, allowed: Sequence[str]) -> str:
    value = _scalar(node, name)
    if value not in allowed:
        expected = f"one of {', '.join(allowed)}"
        raise UserError(f"{_line(node)} {name}", value, expected, _near(value, allowed))
    return value


def _near(word: str, words: Sequence[str]) -> str:
    """Returns a question about the word that is meant, or an empty string."""
    return "".join(f"did you mean {n}?" for n in difflib.get_close_matches(word, words, 1))


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


def _check_places(entries: Sequence[Entry]) -> None:
    """Refuses a flag that a sweep gives itself, or that stands in two sections; a setting's may
    take the place of a fixed one.
    """
    sections: dict[str, str] = {}
    for line, section, flag, *_ in entries:
        with errors.at(f"line {line}"):
            _refuse_sweeps_own(flag)
            other = sections.setdefault(flag, section)
            if other != section and (other, section) != ("fixed", "settings"):
                found = f"it in {other} and in {section}"
                raise UserError(f"--{flag}", found, advice="leave one of them out")


def _check_optimizers(grid: Grid, entries: Sequence[Entry]) -> None:
    """Refuses flags of an optimizer that no run chooses, or, in `grid`, not every run; where the
    trainer has no such optimizer the flag is unknown, which is said later.
    """
    names: dict[str, str] = {}
    for line, section, flag, _, setting in entries:
        parameter = optimizer_flags.parameter_behind(flag)
        if parameter is None:
            continue
        choice, name = parameter.choice, optimizer_flags.first_name(flag)
        if section != "settings" and names.setdefault(name, flag) != flag:
            found = f"--{names[name]}, its other name, too"
            raise UserError(f"line {line} --{flag}", found, advice="leave one of them out")
        chosen = {_chosen(grid.flags, choice, {**grid.fixed, **setting}): None}
        if section != "settings":
            chosen |= {of[choice]: None for of in grid.settings if choice in of}
            chosen = dict.fromkeys(grid.grid.get(choice, chosen))
        is_taken = parameter.optimizer in chosen and (section != "grid" or len(chosen) == 1)
        if None not in chosen and not is_taken:
            found = f"--{choice}={' or '.join(map(str, chosen))}"
            advice = f"leave it out, or make a grid of {parameter.optimizer} alone"
            raise UserError(f"line {line} --{flag}", found, parameter.optimizer, advice)


def number(text: str) -> float | str:
    """Returns the number that a text is, or the text."""
    try:
        return float(text)
    except ValueError:
        return text
