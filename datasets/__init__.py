"""Axis 1, data sets: one file each, found by name. Importing this package loads no TensorFlow.

A data set's module opens with a card (source, licence, clients, fields, split, citation) and has
`create_task(options)`, `create_task_from_data(...)` for data already in memory, and
`synthesize(seed, ...)`. A new one is its file and a line in `REGISTRY`. Installed packages add
others: `datasets.packages`.
"""

import dataclasses
import difflib
import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from datasets import label_partition, packages
from datasets.options import (
    CROSS_SILO as CROSS_SILO,
    DEALT,
    EITHER_SETTING as EITHER_SETTING,
    USERS_DATA,
    DataOptions,
)
from datasets.packages import setting as setting
from datasets.partition import held_out
from motley_tff.core import errors, options as options_lib, plugins
from motley_tff.core.errors import UserError

if TYPE_CHECKING:
    from motley_tff.core.task import Task

REGISTRY: Mapping[str, str] = {
    "adni": "datasets.adni",
    "celeba": "datasets.celeba",
    "cifar10": "datasets.cifar10",
    "emnist": "datasets.emnist",
    "images": "datasets.images",
    "landmark": "datasets.landmark",
    "mnist": "datasets.mnist",
    "school": "datasets.school",
    "sent140": "datasets.sent140",
    "shakespeare": "datasets.shakespeare",
    "stackoverflow": "datasets.stackoverflow",
    "table": "datasets.table",
    "ted_multi": "datasets.ted_multi",
    "text": "datasets.text",
    "vehicle": "datasets.vehicle",
}
# From so many devices on a twelfth, who choose, and a seventh, who are reported, are several.
_FEW_DEVICES = 20
_DATASET, _PARTITION = errors.name("dataset_name"), errors.name("partition")
_SHORT = ("client", "group", "label", "text")
# Options that some data sets cannot do without, unless they are synthetic.
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "table": ("data_file", "client_column", "label_column"),
    "text": ("data_file", "client_column", "text_column"),
}


def names() -> tuple[str, ...]:
    """Returns the names of this project's data sets and of installed packages', sorted."""
    return tuple(sorted({*REGISTRY, *packages.installed()}))


def check_name(name: str) -> None:
    """Checks that a data set is known, without importing it; UserError names a near one."""
    plugins.check_not_ours(packages.installed().get(name), (*REGISTRY, *USERS_DATA))
    if name not in names():
        near = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.5)
        advice = f"did you mean {near[0]!r}?" if near else ""
        raise UserError(_DATASET, name, f"one of {', '.join(names())}", advice)


def check_options(options: DataOptions, has_data: bool = False) -> DataOptions:
    """Returns options as their types have them, if a data set is known and has those that are set,
    without importing it; a package's is imported. `has_data` says that no file is needed.

    UserError if it is unknown or has no such option, or options make no sense.
    """
    check_name(options.dataset_name)
    options = options_lib.checked(options)
    held_out.check(options, setting(options.dataset_name, options.setting))
    options_lib.check_owners(options, _DATASET, options.dataset_name)
    if options.dataset_name not in REGISTRY:
        packages.check_options(packages.installed()[options.dataset_name], options)
    _check_partition(options)
    _check_setting(options)
    if not options.use_synthetic_data:
        _check_required(options, has_data)
    _ = model_files(options), options.silo_shares  # Refuse what is not there, or leaves nothing.
    return options


def _refuse_changed(
    options: DataOptions, names: tuple[str, ...], expected: str, advice: str = "leave it out"
) -> None:
    """Raises a UserError for the first of these options that is not at its default."""
    for name in names:
        if (value := getattr(options, name)) != getattr(DataOptions, name):
            raise UserError(options_lib.name_of(options, name), value, expected, advice)


def _check_partition(options: DataOptions) -> None:
    if options.shakespeare_split == "snippets":
        rule = f"{options_lib.name_of(options, 'shakespeare_split')}=roles"
        dealt = (
            "partition", "evaluation_partition", "min_characters", "valid_clients", "test_clients"
        )  # fmt: skip
        _refuse_changed(options, dealt, f"{rule}, not snippets of all roles")
    is_own = options.dataset_name not in DEALT and options.num_clients is None
    if options.evaluation_partition == "iid" or (options.partition == "iid" and is_own):
        expected = "parts that are not dealt at random, as then each has other shares of classes"
        _refuse_changed(options, ("stratify",), expected)
    if options.partition == "natural":
        if options.dataset_name in DEALT:
            others = label_partition.EXPECTED.removeprefix("natural, ")
            advice = "its examples have no owners; deal them"
            raise UserError(_PARTITION, options.partition, others, advice)
        advice, expected = "give it, or leave this out", f"{_PARTITION}=iid or another"
        _refuse_changed(options, ("num_clients", "min_examples"), expected, advice)
    elif options.partition == "iid" and options.num_clients is None:
        expected = f"{options_lib.name_of(options, 'num_clients')}, or as many examples as before"
        _refuse_changed(options, ("min_examples",), expected)


def _check_setting(options: DataOptions) -> None:
    name = options.dataset_name
    if name in EITHER_SETTING and setting(name, options.setting) == "cross_device":
        advice = f"leave it out, or give {options_lib.name_of(options, 'setting')}=cross_silo"
        expected = f"silos; the clients of {name} are devices here"
        _refuse_changed(options, ("l2_reg", "test_split", "val_split"), expected, advice)


def _check_required(options: DataOptions, has_data: bool) -> None:
    name, synthetic = options.dataset_name, options_lib.name_of(options, "use_synthetic_data")
    folder, file = options.data_dir, options.data_file
    if name == "images" and (folder is None) == (file is None):
        paths = [options_lib.name_of(options, path) for path in ("data_dir", "data_file")]
        raise UserError(
            _DATASET, name,
            f"either {paths[0]}, a folder of <client>/<label>/<file>, or {paths[1]}, an .npz",
            f"give one, or {synthetic}",
        )  # fmt: skip
    for option in _REQUIRED.get(name, ()):
        if not getattr(options, option) and not (has_data and option == "data_file"):
            needed = options_lib.name_of(options, option)
            raise UserError(_DATASET, name, f"{needed} beside it", f"give it, or {synthetic}")


def model_files(options: DataOptions) -> list[str]:
    """Returns the file of a model of the user's own, which decides numbers as data do; none of
    other models. UserError if there is no such file.
    """
    if options.model is None:
        return []
    from datasets.models import users_model  # With NumPy.

    return [str(users_model.find(options.model))] if users_model.is_named(options.model) else []


def raw_examples(options: DataOptions) -> Mapping[str, Mapping[str, Any]]:
    """Returns a user's examples as they were read, `{client id: {column: values}}`, empty where a
    task has them so anyway, or they are made up.
    """
    if options.dataset_name not in REGISTRY:
        return {}
    module = importlib.import_module(REGISTRY[options.dataset_name])
    read = getattr(module, "raw_examples", None)
    return read(options) if read is not None and not options.use_synthetic_data else {}


def label_column(options: DataOptions) -> str | None:
    """Returns which of `raw_examples` is to be predicted, or None."""
    is_table = options.dataset_name in ("table", "text") and not options.use_synthetic_data
    return options.label_column if is_table else "label"


def create(name: str, data: Any = None, **options: Any) -> "Task":
    """Loads a data set from fields of `DataOptions`; UserError if there is no such field, too.

    Args:
      data: A table or texts in memory, see `readers.frames`, in place of a `data_file`. `client`,
        `label` and `text` are short for `client_column` and so on.
    """
    options = {f"{n}_column" if n in _SHORT else n: value for n, value in options.items()}
    fields = {field.name for field in dataclasses.fields(DataOptions)} - {"dataset_name"}
    if unknown := sorted(set(options) - fields):
        near = difflib.get_close_matches(unknown[0], [*_SHORT, *sorted(fields)], n=1)
        advice = f"did you mean {near[0]!r}?" if near else ""
        known = ", ".join(sorted(fields))
        raise UserError(f"task {name!r}", f"option {unknown[0]}", f"some of {known}", advice)
    if data is None:
        return create_task(DataOptions(name, **options))
    if name not in _REQUIRED or {"data_file", "use_synthetic_data"} & options.keys():
        expected = f"task {' or '.join(_REQUIRED)}, and neither a file nor synthetic data beside it"
        raise UserError(f"{errors.name('data')} of task {name!r}", None, expected)
    from datasets.readers import frames  # With pandas.

    if isinstance(data, Mapping):
        options.setdefault("client_column", "client")
    given_options = DataOptions(name, **options)
    return create_task(given_options, frames.read(data, given_options.client_column))


def _with_users_model(
    options: DataOptions, files: list[str], make: Callable[[DataOptions], "Task"]
) -> "Task":
    try:
        task = make(options)
    except ValueError as error:  # Of a task whose labels have another shape than the outputs.
        raise UserError(errors.name("model"), options.model, str(error)) from error
    facts = {**task.facts, "files": [*task.facts.get("files", ()), *files]}
    return dataclasses.replace(task, facts=facts)


def create_task(options: DataOptions, frame: Any = None) -> "Task":
    """Loads a data set's task; UserError if there is none, or its data are missing or broken.

    A `frame` of text cells stands in for the file of a table or of texts.
    """
    options = check_options(options, has_data=frame is not None)
    task = _load(options) if frame is None else _load(options, frame)
    from datasets.kinds import next_words  # With TensorFlow.
    from datasets.partition import dealing

    task = dealing.apply(task, options)
    # Last: whom dealing leaves without a word to be scored on is known only now.
    task = next_words.with_unigram(task)
    is_own_data = options.dataset_name in USERS_DATA
    facts = {**task.facts, **_facts(task, options)}
    if notes := held_out.notes(options, {s: task.splits[s].ids for s in held_out.SPLITS}):
        facts["notes"] = [*facts.get("notes", ()), *notes]
        facts["files"] = [*facts.get("files", ()), *held_out.paths(options)]
        facts["held_out"] = {s: list(task.splits[s].ids) for s in held_out.entries(options)}
    if is_own_data and not options.use_synthetic_data and (few := _few_devices(task)):
        facts["notes"] = [*facts.get("notes", ()), few]
    return dataclasses.replace(task, facts=facts, is_own_data=is_own_data)


def _few_devices(task: "Task") -> str:
    """Returns a note on clients that are too few to be devices, or nothing."""
    train, valid, test = (len(clients) for clients in task.splits.values())
    if task.setting == "cross_silo" or train + valid + test >= _FEW_DEVICES:
        return ""
    return (
        f"{train + valid + test} clients are few to be divided into those that train ({train}), "
        f"choose settings ({valid}) and are reported ({test}); give --setting=cross_silo, and each "
        "does all three with parts of its own examples"
    )


def _facts(task: "Task", options: DataOptions) -> dict[str, Any]:
    """Returns what tells runs on other data apart: the options that decide it, the setting of what
    can have either, and the data's seed, None where nothing of the data is drawn by it.
    """
    facts: dict[str, Any] = {"options": options.deciding}
    if options.dataset_name not in REGISTRY:  # A package does not say the others.
        return facts
    dealt = (options.partition, options.evaluation_partition) != ("natural", "same")
    is_drawn = options.use_synthetic_data or task.setting == "cross_silo" or dealt
    facts["base_random_seed"] = options.seed if is_drawn else None
    return facts | ({"setting": task.setting} if options.dataset_name in EITHER_SETTING else {})


def _load(options: DataOptions, frame: Any = None) -> "Task":
    if options.dataset_name not in REGISTRY:
        return packages.create_task(packages.installed()[options.dataset_name], options)
    module = importlib.import_module(REGISTRY[options.dataset_name])
    make = module.create_task
    if frame is not None:
        from datasets.readers import frames  # With pandas.

        make = functools.partial(module.create_task_from_data, frame, facts=frames.facts(frame))
    if files := model_files(options):
        task = _with_users_model(options, files, make)
    else:
        task = make(options)
    if options.l2_reg:
        from datasets.kinds import silos

        return silos.with_l2(task, options.l2_reg)
    return task
