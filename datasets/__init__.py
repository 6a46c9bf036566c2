"""Axis 1, data sets: one file each, found by name. Importing this package loads no TensorFlow.

A data set's module opens with a card (source, licence, clients, fields, split, citation) and has
`create_task(options)`, `create_task_from_data(...)` for data already in memory, and
`synthesize(seed, ...)`. A new one is its file and a line in `REGISTRY`. Installed packages add
others: `datasets.packages`.
"""

import dataclasses
import difflib
import importlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datasets import label_partition, packages
from datasets.options import DataOptions, Setting
from motley_tff.core import plugins
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
# Those whose clients are silos, the same ones in training and evaluation.
CROSS_SILO = ("adni", "school", "vehicle")
# A user's data, whose clients are devices or silos as the user says.
USERS_DATA = ("images", "table", "text")
# Examples without owners, which are dealt to as many devices or silos as the user says.
DEALT = ("cifar10",)
# What is either devices or silos.
EITHER_SETTING = (*DEALT, "mnist", *USERS_DATA)
# Data whose model a flag chooses.
_WITH_MODELS = ("emnist", "mnist", *USERS_DATA)
_SILOS_OPTIONS = ("l2_reg", "test_split", "val_split")
# Options that mean something to some data sets alone.
OWN_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "adni_split": ("adni",),
    "categorical_columns": ("table",),
    "client_column": ("table", "text"),
    "feature_columns": ("table",),
    "gld23k": ("landmark",),
    "group_key": ("emnist",),
    "image_size": ("images",),
    "l2_reg": (*CROSS_SILO, *EITHER_SETTING),
    "label_column": ("celeba", "table", "text"),
    "label_kind": ("table",),
    "lam_svm": ("vehicle",),
    "mask_padding": ("ted_multi",),
    "min_characters": ("shakespeare",),
    "missing_values": ("table", "text"),
    "model": _WITH_MODELS,
    "model_sizes": _WITH_MODELS,
    "only_digits": ("emnist",),
    "setting": EITHER_SETTING,
    "shakespeare_split": ("shakespeare",),
    "test_split": ("school", "vehicle", *EITHER_SETTING),
    "text_column": ("text",),
    "time_column": ("table", "text"),
    "val_split": ("school", "vehicle", *EITHER_SETTING),
}
_LISTS = ("categorical_columns", "feature_columns", "missing_values", "model_sizes")
# Options that some data sets cannot do without, unless they are synthetic.
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "table": ("data_file", "client_column", "label_column"),
    "text": ("data_file", "client_column", "text_column"),
}


def names() -> tuple[str, ...]:
    """Returns the names of this project's data sets and of installed packages', sorted."""
    return tuple(sorted({*REGISTRY, *packages.installed()}))


def setting(name: str, chosen: Setting | None = None, trainer: str = "") -> Setting:
    """Returns whether a data set's clients are devices or silos; `chosen` decides of those that
    can be either, which if it is None are silos for `mtl_trainer`, else devices. UserError if a
    package does not say.
    """
    if name in EITHER_SETTING:
        return chosen or ("cross_silo" if trainer == "mtl_trainer" else "cross_device")
    if name not in REGISTRY and name in packages.installed():
        return packages.setting(packages.installed()[name])
    return "cross_silo" if name in CROSS_SILO else "cross_device"


def check_name(name: str) -> None:
    """Checks that a data set is known, without importing it; UserError names a near one."""
    plugins.check_not_ours(packages.installed().get(name), (*REGISTRY, *USERS_DATA))
    if name in names():
        return
    near = difflib.get_close_matches(name.lower(), names(), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise UserError(f"unknown dataset {name!r}: expected one of {', '.join(names())}{hint}")


def check_options(options: DataOptions) -> None:
    """Checks, without importing it, that a data set is known and has the options given; a package's
    is imported.

    UserError if it is unknown, has no such option, or shares or regularizers make no sense.
    """
    check_name(options.dataset_name)
    if options.dataset_name not in REGISTRY:
        packages.check_options(packages.installed()[options.dataset_name], options)
    for option, owners in OWN_OPTIONS.items():
        value = getattr(options, option)
        is_given = not (value is None or value is False or value == ())
        if is_given and options.dataset_name not in owners:
            raise UserError(
                f"--{option}: expected --dataset_name={' or '.join(owners)}, found "
                f"{options.dataset_name}; leave --{option} out"
            )
    _check_partition(options)
    _check_users_data(options)
    for option in ("lam_svm", "l2_reg"):
        if not 0 <= ((value := getattr(options, option)) or 0) < math.inf:
            raise UserError(f"--{option}={value:g}: expected a finite number of 0 or more")
    _ = options.silo_shares  # Refuses shares that leave a part nothing.


def _check_partition(options: DataOptions) -> None:
    label_partition.check(options.partition)
    for option in ("num_clients", "min_examples", "max_clients", "max_examples_per_client"):
        value = getattr(options, option)
        if value is not None and value < 1:
            raise UserError(f"--{option}={value}: expected 1 or more")
    if options.shakespeare_split == "snippets":
        for option, default in (("partition", "natural"), ("evaluation_partition", "same")):
            if (value := getattr(options, option)) != default:
                raise UserError(
                    f"--{option}={value}: with --shakespeare_split=snippets all roles train and "
                    "test; leave one of them out"
                )
    if options.partition == "natural":
        if options.dataset_name in DEALT:
            raise UserError(
                f"--partition=natural: the examples of {options.dataset_name} have no owners; give "
                f"{label_partition.EXPECTED.replace('natural, ', '')}"
            )
        for option in ("num_clients", "min_examples"):
            if getattr(options, option) is not None:
                raise UserError(
                    f"--{option} is for examples that are dealt again; give --partition=iid or "
                    "another, or leave it out"
                )
    elif options.partition == "iid" and options.num_clients is None and options.min_examples:
        raise UserError(
            "--min_examples: with --partition=iid each client has as many examples as before; "
            "leave it out, or give --num_clients"
        )


def _check_users_data(options: DataOptions) -> None:
    _ = model_files(options)
    for option in _SILOS_OPTIONS:
        if getattr(options, option) is None or options.dataset_name not in EITHER_SETTING:
            continue
        if setting(options.dataset_name, options.setting) == "cross_device":
            raise UserError(
                f"--{option} is for silos, and the clients of {options.dataset_name} are devices "
                "here; leave it out, or give --setting=cross_silo"
            )
    if options.use_synthetic_data:
        return
    if options.dataset_name == "images" and (options.data_dir is None) == (
        options.data_file is None
    ):
        raise UserError(
            "--dataset_name=images needs either --data_dir, a folder of <client>/<label>/<file>, "
            "or --data_file, an .npz; or give --use_synthetic_data"
        )
    for option in _REQUIRED.get(options.dataset_name, ()):
        if not getattr(options, option):
            raise UserError(
                f"--dataset_name={options.dataset_name} needs --{option}; give it, or "
                "--use_synthetic_data"
            )


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


def create(name: str, **options: Any) -> "Task":
    """Loads a data set from fields of `DataOptions`; UserError if there is no such field, too."""
    fields = {field.name for field in dataclasses.fields(DataOptions)} - {"dataset_name"}
    unknown = sorted(set(options) - fields)
    if unknown:
        raise UserError(
            f"task {name!r} has no option {', '.join(unknown)}; expected some of "
            f"{', '.join(sorted(fields))}"
        )
    for option in _LISTS:
        if isinstance(value := options.get(option), str):  # It would be a list of letters.
            raise UserError(f"{option}={value!r}: expected a list, such as [{value!r}]")
    return create_task(DataOptions(name, **options))


def _with_users_model(module: Any, options: DataOptions, files: list[str]) -> "Task":
    try:
        task = module.create_task(options)
    except ValueError as error:  # Of a task whose labels have another shape than the outputs.
        raise UserError(f"--model={options.model}: {error}") from error
    facts = {**task.facts, "files": [*task.facts.get("files", ()), *files]}
    return dataclasses.replace(task, facts=facts)


def create_task(options: DataOptions) -> "Task":
    """Loads a data set's task; UserError if there is none, or its data are missing or broken."""
    check_options(options)
    task = _load(options)
    from datasets import dealing  # With TensorFlow.

    task = dealing.apply(task, options)
    return dataclasses.replace(task, facts={**task.facts, **_facts(task, options)})


def _facts(task: "Task", options: DataOptions) -> dict[str, Any]:
    """Returns what tells runs on other data apart, as flags alone do not: the setting of what can
    have either, and the data's seed, None where nothing of the data is drawn by it.
    """
    if options.dataset_name not in REGISTRY:  # A package does not say.
        return {}
    dealt = (options.partition, options.evaluation_partition) != ("natural", "same")
    is_drawn = options.use_synthetic_data or task.setting == "cross_silo" or dealt
    seed = {"base_random_seed": options.base_random_seed if is_drawn else None}
    return seed | ({"setting": task.setting} if options.dataset_name in EITHER_SETTING else {})


def _load(options: DataOptions) -> "Task":
    if options.dataset_name not in REGISTRY:
        return packages.create_task(packages.installed()[options.dataset_name], options)
    module = importlib.import_module(REGISTRY[options.dataset_name])
    if files := model_files(options):
        task = _with_users_model(module, options, files)
    else:
        task = module.create_task(options)
    if options.l2_reg:
        from datasets import silos

        return silos.with_l2(task, options.l2_reg)
    return task
