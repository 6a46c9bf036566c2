"""Data sets of installed packages: entry points `motley_tff.datasets`, `name=module:create`.

`create(name, **options) -> Task` takes whichever of `OPTIONS` it names as arguments, and says its
clients' setting before it is called: `create.setting = "cross_device"` or `"cross_silo"`.
"""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from datasets.options import CROSS_SILO, EITHER_SETTING, DataOptions, Setting
from motley_tff.core import errors, plugins
from motley_tff.core.plugins import Plugin

if TYPE_CHECKING:
    from motley_tff.core.task import Task

# Fields of `DataOptions` that are passed on, where `create` takes them.
OPTIONS = ("base_random_seed", "data_dir", "data_file", "use_synthetic_data")
_SETTINGS = typing.get_args(Setting)


def installed() -> Mapping[str, Plugin]:
    """Returns the data sets of installed packages by name; none of them is imported."""
    return plugins.installed(plugins.DATASETS)


@functools.cache
def _create(plugin: Plugin) -> Callable[..., Any]:
    create = plugin.load()
    if not callable(create):
        raise plugin.error(repr(create), "a function (name, **options) -> Task")
    return create


def setting(name: str, chosen: Setting | None = None, trainer: str = "") -> Setting:
    """Returns whether a data set's clients are devices or silos; `chosen` decides of those that
    can be either, which if it is None are silos for `mtl_trainer`, else devices. UserError if a
    package does not say.
    """
    if name in EITHER_SETTING:
        return chosen or ("cross_silo" if trainer == "mtl_trainer" else "cross_device")
    if name in installed():
        return announced(installed()[name])
    return "cross_silo" if name in CROSS_SILO else "cross_device"


def announced(plugin: Plugin) -> Setting:
    """Returns what clients are, as `create` says it; UserError if it does not."""
    declared: Any = getattr(_create(plugin), "setting", None)
    if declared not in _SETTINGS:
        raise plugin.error(
            f"{declared!r} as its function's attribute `setting`",
            " or ".join(map(repr, _SETTINGS)),
            'write create.setting = "cross_device" below the function',
        )
    return declared


def takes(plugin: Plugin, option: str) -> bool:
    """Returns whether `create` takes an option."""
    parameters = inspect.signature(_create(plugin)).parameters
    return option in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def check_options(plugin: Plugin, options: DataOptions) -> None:
    """Raises UserError if an option is given that `create` does not take, or it says no setting."""
    announced(plugin)
    _arguments(plugin, options)


def _arguments(plugin: Plugin, options: DataOptions) -> dict[str, Any]:
    """Returns the options that are given, and the seed where it is taken."""
    defaults = DataOptions(options.dataset_name)
    arguments = {
        option: value
        for option in OPTIONS
        if (value := getattr(options, option)) != getattr(defaults, option)
    }
    arguments["base_random_seed"] = options.seed
    unknown = sorted(option for option in arguments if not takes(plugin, option))
    for option in unknown:
        if option != "base_random_seed":  # Nothing may be left to chance there.
            name = errors.name(option)
            raise plugin.error(f"no argument {option}", advice=f"leave {name} out")
        del arguments[option]
    return arguments


def create_task(plugin: Plugin, options: DataOptions) -> "Task":
    """Returns the task, which says where it is from; UserError if it is not what was announced."""
    from motley_tff.core.task import Task  # TensorFlow takes 3 s.

    task = _create(plugin)(plugin.name, **_arguments(plugin, options))
    if not isinstance(task, Task):
        raise plugin.error(f"{type(task).__name__} returned", "a Task")
    expected = (plugin.name, announced(plugin))
    if (task.dataset, task.setting) != expected:
        raise plugin.error(
            f"a task whose dataset={task.dataset!r}, setting={task.setting!r}",
            f"{expected[0]!r}, {expected[1]!r}, as the entry point and create.setting say",
        )
    return dataclasses.replace(task, facts={**task.facts, "package": plugin.origin})
