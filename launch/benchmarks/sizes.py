"""How large the workloads are; each field is a flag of motley_benchmark."""

import dataclasses
from typing import Any


def _size(default: int, meaning: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": meaning})


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of all workloads; the defaults are those of the published experiments.

    Attributes:
      data_dir: Where real data are; None for made-up data.
    """

    data_dir: str | None = None
    emnist_clients: int = _size(10, "emnist_cnn: clients a round.")
    emnist_images: int = _size(200, "emnist_cnn: images a client.")
    emnist_batch_size: int = _size(20, "emnist_cnn, finetuning_evaluation: images a batch.")
    lstm_clients: int = _size(4, "stackoverflow_lstm: clients a round.")
    lstm_sentences: int = _size(64, "stackoverflow_lstm: sentences a client.")
    lstm_tokens: int = _size(20, "stackoverflow_lstm: tokens a sentence.")
    lstm_batch_size: int = _size(16, "stackoverflow_lstm: sentences a batch.")
    lstm_vocabulary: int = _size(10_004, "stackoverflow_lstm: tokens there are.")
    lstm_units: int = _size(670, "stackoverflow_lstm: units of the LSTM.")
    school_rounds: int = _size(500, "school_fedavg, school_grid: rounds.")
    school_measured_rounds: int = _size(
        5, "school_fedavg: rounds that are run, and extrapolated, where all would take minutes."
    )
    school_batch_size: int = _size(32, "school_fedavg, school_grid: students a batch.")
    grid_seeds: int = _size(5, "school_grid: seeds of each pair of rates.")
    finetuning_clients: int = _size(100, "finetuning_evaluation: clients.")
    finetuning_measured_clients: int = _size(
        20, "finetuning_evaluation: clients that are run, and extrapolated."
    )
    finetuning_epochs: int = _size(20, "finetuning_evaluation: epochs, each one evaluated.")
    finetuning_images: int = _size(
        50, "finetuning_evaluation: images a client to personalize on, and as many to evaluate on."
    )
    population_clients: int = _size(342_477, "population: clients there are.")
    population_cohort: int = _size(200, "population: clients a round.")
    population_rounds: int = _size(200, "population: rounds.")
    population_settled_round: int = _size(
        20, "population: memory growth is counted from after this round."
    )


def size_fields() -> tuple[dataclasses.Field, ...]:
    """Returns the fields that are counts."""
    return tuple(f for f in dataclasses.fields(Sizes) if "help" in f.metadata)
