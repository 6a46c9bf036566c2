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
                                  # `nothing`: then best.csv has no rows; the mean is that of
                                  # --tuning_metric, if it is fixed
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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml
from absl import flags

import datasets
from motley_tff import algorithms, commandline
from motley_tff.core import errors, options
from motley_tff.core.errors import UserError
from motley_tff.evaluation.config import EvaluationConfig
from motley_tff.tables import columns
from trainers import TRAINERS, algorithm_flags, optimizer_flags, option_flags, published_flags

_REQUIRED = ("algorithm", "dataset", "trainer")
SECTIONS = ("fixed", "inside", "grid")
NOTHING = "nothing"
# What a sweep itself tells a trainer.
_SWEEP_FLAGS = frozenset(
    {"experiment_name", "root_output_dir", "dataset_name", "base_random_seed", "data_dir",
     "data_file", "use_synthetic_data", "tensorboard", "flagfile", "verbosity", "help"}
)  # fmt: skip
# Of a directory.
_LONGEST_NAME = 128
_FIXED = errors.name("fixed")
_TUNING_METRIC = options.name_of(EvaluationConfig, "tuning_metric").flag
_ONE_TOO_MANY = "leave one of them out"
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
        options_of_trainer = algorithm_flags.make(self.trainer)
        return {name: option.flag for name, option in options_of_trainer.items()}

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
            or self.optimizer(parameter.choice, chosen) == parameter.optimizer
        }

    def optimizer(self, choice: str, values: Mapping[str, str]) -> str | None:
        """Returns what a flag's value chooses, or its default; None if its trainer has no such."""
        known = self.flags.get(choice)
        return values.get(choice) or (known.default if known is not None else None)

    @property
    def num_points(self) -> int:
        """How many combinations there are."""
        return math.prod(map(len, self.grid.values())) * max(1, len(self.settings))

    @functools.cached_property
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
        is_best = flags.get("reported_round") == "best"
        return is_best or bool({"finetune_every", "stop_after"} & flags.keys())

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


class _Text(str):
    """What a file says, and on which line; what the command line says is on none."""

    line = 0


class _FlagValues(NamedTuple):
    """The values of a flag: on which line, in which section, beside which others of a setting."""

    line: int
    section: str
    flag: str
    values: Sequence[str]
    setting: Mapping[str, str] = MappingProxyType({})


def _flag_values(grid: Grid) -> Iterator[_FlagValues]:
    """Yields the flags of a grid, in the order of sections."""
    for section in SECTIONS:
        for flag, values in getattr(grid, section).items():
            texts = (values,) if section == "fixed" else values
            yield _FlagValues(getattr(texts[0], "line", 0), section, flag, texts)
    for setting in grid.settings:
        for flag, text in setting.items():
            yield _FlagValues(getattr(text, "line", 0), "settings", flag, (text,), setting)


def parse(path: pathlib.Path) -> Grid:
    """Returns the grid of a file, whose values its trainer has yet to see.

    UserError, with the line where there is one, if the file cannot be read or is no grid.
    """
    with errors.at(path):
        content = _read(_compose(path), _FORM, "the grid")
        if lacking := [key for key in _REQUIRED if key not in content]:
            raise UserError("", f"no key {lacking[0]}", f"the keys {', '.join(_REQUIRED)}")
        with _at(f"line {content['dataset'].line}"):
            datasets.check_name(content["dataset"])
        grid = Grid(**{**{name: {} for name in SECTIONS}, **content})
        if not (grid.grid or grid.inside or grid.settings):
            raise UserError("grid", None, "a flag and its values")
        _check_places(grid)
        _check_optimizers(grid)
        return grid


def read(path: pathlib.Path, fixed: Mapping[str, str] = MappingProxyType({})) -> Grid:
    """Returns a file's grid, with other values of `fixed`; what they name is searched no more.

    UserError as `parse`, and if the trainer refuses a flag or a value.
    """
    return checked(with_fixed(parse(path), fixed), path)


def with_fixed(grid: Grid, fixed: Mapping[str, str]) -> Grid:
    """Returns a grid with other values of `fixed`; UserError for a flag that a sweep sets."""
    with errors.at("--fixed"):
        for flag in fixed:
            _refuse_sweeps_own(flag)

    def left(values: Mapping[str, Any]) -> dict[str, Any]:
        return {flag: value for flag, value in values.items() if flag not in fixed}

    # Settings that differ in nothing else become one.
    settings = {tuple(left(setting).items()): left(setting) for setting in grid.settings}
    return dataclasses.replace(
        grid, fixed={**grid.fixed, **fixed}, inside=left(grid.inside), grid=left(grid.grid),
        settings=tuple(settings.values()),
    )  # fmt: skip


def checked(grid: Grid, place: object) -> Grid:
    """Returns a grid of a file, or of another place, once its trainer takes its flags; UserError if
    it refuses one.
    """
    for line, section, flag, texts, _ in _flag_values(grid):
        with _at(f"{place} line {line}" if line else f"{place}, --fixed"):
            for text in [",".join(texts)] if section == "inside" else texts:
                grid.parsed(flag, text)
    with _at(place):
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
        raise UserError(f"--{flag}", "a flag that motley_sweep sets itself", advice="leave it out")


def fixed_flags(texts: Sequence[str]) -> dict[str, str]:
    """Returns `{flag: value}` of texts such as `partition=iid`; UserError if one is not such."""
    pairs = [text.lstrip("-").partition("=") for text in texts]
    for text, (flag, _, value) in zip(texts, pairs, strict=True):
        if not flag or not value:
            raise UserError(_FIXED, text, "FLAG=VALUE, such as total_rounds=20")
    for flag, times in Counter(flag for flag, _, _ in pairs).items():
        if times > 1:
            raise UserError(_FIXED, flag, "each flag once", _ONE_TOO_MANY)
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
    offered, plain = algorithms.offered_by(grid.trainer), algorithms.FedAvg.check
    picky = {name: kind for name, kind in offered.items() if kind.check is not plain}
    parts = (o for kind in picky.values() for o in options.options(kind, grid.trainer))
    deciding = {"algorithm", *(option.name.flag for option in parts if not option.field)}
    searched = {f: v for f, v in grid.grid.items() if optimizer_flags.first_name(f) in deciding}
    for setting, texts in itertools.product(
        grid.settings or ({},), itertools.product(*searched.values())
    ):
        point = {**setting, **dict(zip(searched, texts, strict=True))}
        flags = {**grid.fixed_of(point), **point}
        name = flags.get("algorithm", algorithms.DEFAULTS.get(grid.trainer, ""))
        if name in picky:
            values = {optimizer_flags.first_name(f): grid.parsed(f, v) for f, v in flags.items()}
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
    except RecursionError as error:
        raise UserError("", "mappings that nest far too deeply", expected) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark, problem = (getattr(error, name, None) for name in ("problem_mark", "problem"))
        where = f"line {mark.line + 1}" if mark else ""
        raise UserError(where, f"no YAML in UTF-8 ({problem or error})", expected) from error
    if node is None:
        raise UserError("", "an empty file", f"the keys {', '.join(_REQUIRED)} and grid")
    return node


def _is_utf8(text: str) -> bool:
    """Returns whether a file can hold a text: not one with half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read(node: yaml.Node, form: Any, name: str) -> Any:
    """Returns what a node holds; UserError, with its line, if it is of another form.

    A form is `str`, a tuple of allowed texts, a list of the form of its items, a dictionary of the
    forms of its keys, with the key `str` for all others, or a function of the node and its name.
    """
    where = f"line {node.start_mark.line + 1} {name}"
    if isinstance(form, dict):
        return _read_mapping(node, form, where)
    if isinstance(form, list):
        return _read_list(node, form[0], name, where)
    if not isinstance(form, tuple) and form is not str:
        return form(node, name)
    if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null") or not node.value:
        raise UserError(where, None, "one value")
    if isinstance(form, tuple) and node.value not in form:
        expected = f"one of {', '.join(form)}"
        raise UserError(where, node.value, expected, _near(node.value, form))
    if not node.value.isprintable() and not _is_utf8(node.value):
        raise UserError(where, ascii(node.value), "text that UTF-8 can hold")
    text = _Text(node.value)
    text.line = node.start_mark.line + 1
    return text


def _read_mapping(node: yaml.Node, forms: Mapping[Any, Any], where: str) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise UserError(where, None, "lines of key: value")
    content: dict[str, Any] = {}
    for key_node, value in node.value:
        key = _read(key_node, str, "a key")
        form = forms.get(key, forms.get(str))
        if form is None:
            expected, advice = f"one of {', '.join(forms)}", _near(key, [*forms])
            raise UserError(f"line {key.line}", f"key {key}", expected, advice)
        if key in content:
            raise UserError(f"line {key.line}", f"a second {key}", advice=_ONE_TOO_MANY)
        content[key] = _read(value, form, key)
    return content


def _read_list(node: yaml.Node, form: Any, name: str, where: str) -> tuple[Any, ...]:
    is_values = form is str
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        kind = "values, such as [0.01, 0.1]" if is_values else "mappings of flags"
        raise UserError(where, None, f"a list of {kind}")
    items: list[Any] = []
    for item in node.value:
        content = _read(item, form, name if is_values else "a setting")
        if (number(content) if is_values else content) in map(number, items):
            again = f"{content if is_values else 'the same setting'} twice"
            raise UserError(f"line {item.start_mark.line + 1} {name}", again, advice=_ONE_TOO_MANY)
        items.append(content)
    return tuple(items)


def _statistic(node: yaml.Node, name: str) -> list[float]:
    """Returns a mean over clients and, if it is there, its standard deviation over seeds."""
    parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
    numbers = [number(_read(part, str, name)) for part in parts]
    if not 1 <= len(numbers) <= 2 or any(isinstance(part, str) for part in numbers):
        where = f"line {node.start_mark.line + 1} {name}"
        raise UserError(where, None, "[mean, std over seeds]")
    return numbers


_FLAGS = {str: str}
_PAPER = {"source": str, "best": _FLAGS, **dict.fromkeys(columns.STATISTICS, _statistic)}
_FORM = {
    "algorithm": str, "dataset": str, "trainer": TRAINERS, "fixed": _FLAGS, "inside": {str: [str]},
    "grid": {str: [str]}, "settings": [_FLAGS], "choose_by": ("personalized", "baseline", NOTHING),
    "paper": _PAPER,
}  # fmt: skip


def _near(word: str, words: Sequence[str]) -> str:
    """Returns a question about the word that is meant, or an empty string."""
    return "".join(f"did you mean {n}?" for n in difflib.get_close_matches(word, words, 1))


def _check_places(grid: Grid) -> None:
    """Refuses a flag that a sweep gives itself, or that stands in two sections; a setting's may
    take the place of a fixed one.
    """
    sections: dict[str, str] = {}
    for line, section, flag, *_ in _flag_values(grid):
        with errors.at(f"line {line}"):
            _refuse_sweeps_own(flag)
            if flag == _TUNING_METRIC and section != "fixed":
                both = "one for all runs, as settings are compared by it"
                raise UserError(f"--{flag}", f"several, in {section}", both, "put it in fixed")
            other = sections.setdefault(flag, section)
            if other != section and (other, section) != ("fixed", "settings"):
                both = f"the same flag in {other} and in {section}"
                raise UserError(f"--{flag}", both, advice=_ONE_TOO_MANY)


def _check_optimizers(grid: Grid) -> None:
    """Refuses flags of an optimizer that no run chooses, or, in `grid`, not every run; where the
    trainer has no such optimizer the flag is unknown, which is said later.
    """
    names: dict[str, str] = {}
    for line, section, flag, _, setting in _flag_values(grid):
        parameter = optimizer_flags.parameter_behind(flag)
        if parameter is None:
            continue
        choice, name = parameter.choice, optimizer_flags.first_name(flag)
        if section != "settings" and names.setdefault(name, flag) != flag:
            both = f"the same flag under its other name, --{names[name]}"
            raise UserError(f"line {line} --{flag}", both, advice=_ONE_TOO_MANY)
        chosen = {grid.optimizer(choice, {**grid.fixed, **setting}): None}
        if section != "settings":
            chosen |= {other[choice]: None for other in grid.settings if choice in other}
            chosen = dict.fromkeys(grid.grid.get(choice, chosen))
        is_taken = parameter.optimizer in chosen and (section != "grid" or len(chosen) == 1)
        if None not in chosen and not is_taken:
            others = f"--{choice}={' or '.join(map(str, chosen))}"
            advice = f"leave it out, or make a grid of {parameter.optimizer} alone"
            raise UserError(f"line {line} --{flag}", others, parameter.optimizer, advice)


def number(text: Any) -> Any:
    """Returns the number that a text is, or what it is."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return text
