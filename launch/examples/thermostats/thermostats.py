"""How warm a room gets, each room in its own way; and FedAvg that clips what clients send.

A package of plug-ins to copy from: motley_tff/algorithms/README.md has its rules.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import pandas as pd

from motley_tff.algorithms import FedAvg, option
from motley_tff.algorithms.card import Card
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.core.lazy import tf

COLUMNS = ["room", "heating", "outside", "inside"]


def create(name, base_random_seed, data_file=None, use_synthetic_data=False):
    """Returns the task: from a CSV's columns, or from made-up rooms."""
    from datasets.kinds import silos  # These load TensorFlow, which takes 3 seconds.
    from datasets.models.linear import Linear
    from datasets.partition import splits
    from motley_tff.core import functional_model, task

    if use_synthetic_data:
        table = made_up_rooms(base_random_seed)
    elif data_file:
        table = pd.read_csv(data_file, dtype={"room": str})
    else:
        raise UserError(errors.name("data_file"), None, f"a CSV of {', '.join(COLUMNS)}")
    if missing := [column for column in COLUMNS if column not in table]:
        raise UserError(data_file, f"no column {missing[0]!r}", ", ".join(COLUMNS))
    rooms = {
        room: {
            "features": rows[["heating", "outside"]].to_numpy(np.float32),
            "target": rows["inside"].to_numpy(np.float32),
        }
        for room, rows in table.groupby("room")
    }
    # 73% of the rooms train, 12% choose settings, 15% are reported; the latter two personalize on
    # one half of their rows and are scored on the other.
    split = splits.published_or_proportional({r: len(e["target"]) for r, e in rooms.items()})
    clients = splits.make_clients(split, dict.fromkeys(splits.SPLITS, rooms))
    return task.Task(
        dataset=name,
        setting=create.setting,
        model=functional_model.from_keras(Linear, np.zeros([1, 2], np.float32)),
        loss=silos.squared_error,
        metrics=(task.Metric("squared_error", silos.squared_error, higher_is_better=False),),
        preprocess=silos.preprocess,
        facts={"source": "synthetic"} if use_synthetic_data else {"files": [data_file]},
        neighbours="regression",
        **clients,
    )


create.setting = "cross_device"  # Or "cross_silo": known before anything is loaded.


def made_up_rooms(seed):
    """Returns a table of 40 rooms, half of them badly insulated."""
    rng = np.random.default_rng([seed, 1])
    tables = []
    for i in range(40):
        heating, outside, noise = rng.normal(size=(3, rng.integers(12, 40)))
        inside = (0.8 if i % 2 else 0.3) * heating + (0.1 if i % 2 else 0.6) * outside
        columns = {"heating": heating, "outside": outside, "inside": inside + 0.1 * noise}
        tables.append(pd.DataFrame({"room": f"room{i:02d}", **columns}))
    return pd.concat(tables)


@dataclasses.dataclass(frozen=True)
class ClippedFedAvg(FedAvg):
    """FedAvg that clips updates to norm `clip_norm`; with a large `clip_norm` it is FedAvg."""

    card: ClassVar[Card] = Card(
        "clipped_fedavg", "Clipped FedAvg", ("finetuning_trainer", "knn_per_trainer")
    )
    clip_norm: float = option(1.0, "Largest norm of an update of clipped_fedavg")

    def build(self, task, initial_weights):
        """Returns FedAvg with clipped updates."""
        algorithm = super().build(task, initial_weights)

        def finish(carry):
            output = algorithm.work.finish(carry)
            update, _ = tf.clip_by_global_norm(output.update, self.clip_norm)
            return output._replace(update=tuple(update))

        work = dataclasses.replace(algorithm.work, finish=finish)
        return dataclasses.replace(algorithm, work=work)
