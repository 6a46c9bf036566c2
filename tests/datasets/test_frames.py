"""A table in memory is the task that its file is."""

import pandas as pd
import pytest

from motley_tff import interface
from motley_tff.algorithms import FedAvg
from motley_tff.core.errors import UserError
from tests.errors import refused

_FRAME = pd.DataFrame(
    {
        "owner": [f"o{i // 8}" for i in range(96)],
        "size": [i % 7 + 0.5 * (i % 3) if i % 11 else None for i in range(96)],
        "kind": pd.Categorical(["a" if i % 5 else "b" for i in range(96)]),
        "bought": [i % 2 == 0 for i in range(96)],
    }
)
_COLUMNS = {"client": "owner", "label": "bought"}


def _arrays(task):
    return {
        f"{split}/{client}/{part}/{field}": values.tobytes()
        for split, clients in task.splits.items()
        for client in clients.ids
        for part, examples in clients.fetch(client).items()
        for field, values in examples.items()
    }


@pytest.mark.parametrize("kind", ["frame", "columns", "clients"])
def test_data_in_memory_are_those_of_their_file(tmp_path, kind):
    _FRAME.to_csv(tmp_path / "t.csv", index=False)
    of_file = interface.create_task("table", data_file=str(tmp_path / "t.csv"), **_COLUMNS)
    data = {
        "frame": _FRAME,
        "columns": {name: _FRAME[name].to_numpy() for name in _FRAME},
        "clients": {
            name: rows.drop(columns="owner") for name, rows in _FRAME.groupby("owner", sort=False)
        },
    }[kind]
    task = interface.create_task("table", data=data, **_COLUMNS)
    assert _arrays(task) == _arrays(of_file) and task.is_own_data


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    def run(frame):
        task = interface.create_task("table", data=frame, **_COLUMNS)
        interface.run(task, FedAvg(), rounds=0, root_output_dir=str(tmp_path))

    run(_FRAME)
    run(_FRAME)
    with refused(finding="data files"):
        run(_FRAME.assign(size=1.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": [1, 2]}, "found a list, expected a DataFrame"),
        ({"data": _FRAME.iloc[:0]}, "a header and no rows"),
        ({"data": {"owner": ["a", "b"], "bought": [1]}}, "columns of different lengths"),
        ({"data": {"x": _FRAME}}, "no column 'owner'"),
        ({"data": _FRAME, "data_file": "t.csv"}, "neither a file nor synthetic data"),
        ({"data": _FRAME, "clients": "owner"}, "did you mean 'client'?"),
        ({"data": _FRAME, "label": "bougth"}, "did you mean 'bought'?"),
    ],
)
def test_other_data_are_refused_in_a_line(options, message):
    with pytest.raises(UserError) as error:
        interface.create_task("table", **{**_COLUMNS, **options})
    assert message in str(error.value) and "\n" not in str(error.value)
