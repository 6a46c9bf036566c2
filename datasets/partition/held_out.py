"""Who validates and tests by name: `--valid_clients`, `--test_clients`. No TensorFlow here.

An entry is a client's name, as data or `clients.csv` have it; `group=VALUE`, all clients of a group
that the data set knows; or a file that ends in .txt, with a name a line.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from datasets.options import DEALT, EITHER_SETTING, DataOptions, Setting
from motley_tff.core import errors
from motley_tff.core.errors import UserError

SPLITS = ("valid", "test")
_GROUP, _FILE = "group=", ".txt"
_A_FILE = "a file in UTF-8 with a client's name a line"
_MOST_LISTED = 12
# A near name is looked for among so many; among all of a large data set it could take minutes.
_MOST_COMPARED = 5000


def entries(options: DataOptions) -> dict[str, tuple[str, ...]]:
    """Returns `{split: what options name}` of the splits whose clients they name."""
    every = {split: getattr(options, f"{split}_clients") for split in SPLITS}
    return {split: names for split, names in every.items() if names is not None}


def paths(options: DataOptions) -> list[str]:
    """Returns the files that have names, which decide numbers as data do."""
    return [e for names in entries(options).values() for e in names if e.endswith(_FILE)]


def check(options: DataOptions, setting: Setting) -> None:
    """Raises a UserError if a data set's clients have no names of their own, are silos, or a file
    of names cannot be read.
    """
    is_dealt = options.partition != "iid" or options.num_clients is not None
    is_dealt = options.dataset_name in DEALT or (options.partition != "natural" and is_dealt)
    for split, names in entries(options).items():
        advice, expected = "leave it out", ""
        if setting == "cross_silo":
            expected = "devices, as every silo trains, and is tested on examples of its own"
            if options.dataset_name in EITHER_SETTING:
                advice = f"give {errors.name('setting')}=cross_device, or {advice}"
        elif is_dealt:
            expected = (
                f"clients of the data's own, not those that {errors.name('partition')} deals to"
            )
        if expected:
            raise UserError(_name(split), names, expected, advice)
        _names(split, names)


def _name(split: str) -> errors.Name:
    return errors.name(f"{split}_clients")


def _names(split: str, names: Sequence[str]) -> list[str]:
    """Returns entries with what files have in their place."""
    return [n for entry in names for n in (_read(split, entry) if entry[-4:] == _FILE else [entry])]


def _read(split: str, path: str) -> list[str]:
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it has other bytes"
        expected = f"{_A_FILE} ({reason})"
        raise UserError(_name(split), path, expected, "mend the path or the file") from error
    if not (names := [line.strip() for line in lines if line.strip()]):
        raise UserError(_name(split), path, f"{_A_FILE}, but it is empty", "write names into it")
    return names


def named(
    options: DataOptions | None, ids: Collection[str], groups: Mapping[str, str]
) -> dict[str, list[str]]:
    """Returns `{split: its clients, in the order of ids}` of the splits whose clients are named.

    Args:
      options: None names nobody.
      ids: All clients.
      groups: The known group of each, empty if there is none.

    Raises:
      UserError: If a name or a group is not there, a client is in both splits, or too few are left.
    """
    asked = entries(options) if options else {}
    chosen = {
        split: {i for n in _names(split, names) for i in _clients(split, n, ids, groups)}
        for split, names in asked.items()
    }
    if both := set.intersection(*chosen.values()) if len(chosen) == 2 else set():
        expected = f"clients that {_name('valid')} does not name, too"
        raise UserError(_name("test"), min(both), expected, "leave it out of one")
    left, needed = len(ids) - sum(map(len, chosen.values())), 3 - len(chosen)
    if chosen and left < needed:
        expected = (
            f"at least {needed} of {len(ids)} clients to be left, of whom 1 trains, not {left}"
        )
        split = [*chosen][-1]
        raise UserError(_name(split), asked[split], expected, "name fewer")
    return {split: [i for i in ids if i in members] for split, members in chosen.items()}


def _clients(
    split: str, entry: str, ids: Collection[str], groups: Mapping[str, str]
) -> Collection[str]:
    """Returns the clients of an entry."""
    # In tables of runs the data set comes first.
    if client := next((c for c in (entry, entry.partition(":")[2]) if c in ids), None):
        return [client]
    if not entry.startswith(_GROUP):
        near = difflib.get_close_matches(entry, [*ids][:_MOST_COMPARED], 1)
        other = (
            f"give names such as {next(iter(ids))}, {_GROUP}VALUE or a file that ends in {_FILE}"
        )
        raise UserError(
            _name(split), entry, "a client", f"did you mean {near[0]}?" if near else other
        )
    if members := [i for i in ids if groups.get(i) == entry.removeprefix(_GROUP)]:
        return members
    if not groups:
        column = (
            f"{errors.name('group_column')} (table, text) or {errors.name('group_key')} (emnist)"
        )
        expected = "names of clients, as nothing says of which group they are"
        raise UserError(_name(split), entry, expected, f"give these, or {column}")
    expected = f"{_GROUP} and one of {listed(sorted({*groups.values()}))}"
    raise UserError(_name(split), entry, expected)


def listed(names: Sequence[str]) -> str:
    """Returns the first of some names."""
    return ", ".join(names[:_MOST_LISTED]) + ", ..." * (len(names) > _MOST_LISTED)


def notes(options: DataOptions, ids: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns a line for each split that options name, with its clients: `{split: ids}`."""
    return [
        f"--{split}_clients={','.join(names)} names {len(ids[split]):,} clients to "
        f"{'validate' if split == 'valid' else split}, who never train: {listed(ids[split])}"
        for split, names in entries(options).items()
    ]
