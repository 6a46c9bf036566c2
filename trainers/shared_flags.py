"""Flags that every trainer has; `trainers.config` reads them.

The names of the published trainers stay as they were. Nothing here imports TensorFlow, so that a
wrong command line fails at once.
"""

from absl import flags

from motley_tff.algorithms import attacks
from motley_tff.backends.tff import targets as worker_targets
from motley_tff.experiment import acceptance, run_directory
from trainers import data_flags, optimizer_flags

BACKENDS = ("auto", "tff", "sequential", "vectorized")
AGGREGATORS = (
    "mean", "robust", "compressed", "secure", "differentially_private", "median", "trimmed_mean",
)  # fmt: skip


def define() -> None:
    """Declares the flags of data, rounds, evaluation, backend and FedAvg's optimizers."""
    data_flags.define()
    _define_experiment()
    _define_rounds()
    _define_cohort()
    _define_evaluation()
    _define_backend()
    optimizer_flags.define("client", default_rate=0.1)
    optimizer_flags.define("server", default_rate=1.0)


def _define_experiment() -> None:
    flags.DEFINE_string("experiment_name", None, "Name of the experiment and its directory.")
    flags.DEFINE_string("root_output_dir", "results", "Directory that holds the experiments.")
    flags.DEFINE_integer(
        "base_random_seed", 0, "Seed of every random choice.", lower_bound=0,
        upper_bound=2**32 - 1,
    )  # fmt: skip
    flags.mark_flags_as_required(["experiment_name", "dataset_name"])
    data_flags.register_check("experiment_name", run_directory.check_name, after="; ")


def _define_rounds() -> None:
    flags.DEFINE_integer(
        "total_rounds", 100, "Training rounds; 0 leaves local training alone.", lower_bound=0
    )
    _define_count("rounds_per_evaluation", 10, "Evaluate every so many rounds.")
    flags.DEFINE_enum(
        "reported_round",
        "last",
        ["last", "best"],
        "Which evaluation the closing table, sweeps and reports show; best, for silos, is that of "
        "best validation mean.",
    )
    _define_count("rounds_per_checkpoint", 50, "Save a checkpoint every so many rounds.")
    _define_count(
        "clients_per_train_round",
        10,
        "Clients in a round's cohort. Unless the flag is given, silos all take part, and devices "
        "where there are fewer.",
    )
    flags.DEFINE_float(
        "clients_fraction",
        None,
        "Share of the training clients in a round's cohort, in place of their number.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    flags.register_validator(
        "clients_fraction", lambda share: share is None or share > 0, "expected above 0, at most 1"
    )
    _define_count("train_epochs", 1, "Local epochs a round.", 10_000)
    _define_count("train_batch_size", 10, "Examples a batch.", 2**31 - 1)
    flags.DEFINE_string(
        "path_to_initial_model_weights",
        None,
        "Start from these weights: a run's directory, its global_model.npz, or a Keras SavedModel.",
    )
    flags.register_validator(
        "path_to_initial_model_weights",
        lambda path: path is None or bool(path),
        "expected a path, found nothing",
    )


def _define_cohort() -> None:
    flags.DEFINE_float(
        "dropout_rate",
        0.0,
        "Probability that a client of a cohort gets the model and sends nothing back.",
        lower_bound=0.0,
        upper_bound=0.99,
    )
    flags.DEFINE_float(
        "straggler_rate",
        0.0,
        "Probability that a client of a cohort has time for a random share of its training steps "
        "only.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    flags.DEFINE_string(
        "attack", "none", "Training clients that attack, the same ones in all rounds: "
        "label_flip:SHARE, sign_flip:SHARE:FACTOR.",
    )  # fmt: skip
    data_flags.register_check("attack", attacks.parse, after=": ")


def _define_count(name: str, default: int, meaning: str, most: int | None = None) -> None:
    flags.DEFINE_integer(name, default, meaning, lower_bound=1, upper_bound=most)


def _define_evaluation() -> None:
    for split in ("valid", "test"):
        words = f"How many {split} clients an evaluation during training samples; silos: all."
        _define_count(f"{split}_clients_per_evaluation", 100, words)
    flags.DEFINE_integer(
        "final_evaluation_clients",
        0,
        "How many clients of each split the last evaluation samples; 0 for all. Silos: all.",
        lower_bound=0,
    )
    flags.DEFINE_bool(
        "evaluate_ood",
        False,
        "Also score test clients' models on examples of the other test clients: columns "
        "ood_baseline, ood_personalized.",
    )
    _define_count(
        "ood_examples",
        500,
        "How many such examples; of each client as many, fewer in all if some have too few.",
        100_000,
    )
    flags.DEFINE_list(
        "personalization_fraction",
        ["1"],
        "Shares of the personalization set to personalize on, above 0 and at most 1; with several, "
        "sizes.csv has them all, the other tables the first.",
    )
    flags.DEFINE_list(
        "acceptance",
        ["always"],
        "Which clients take their personalized model in place of the global one: always, "
        "min_examples:N, validated[:fraction] or validated_loss[:fraction]; acceptance.csv has "
        "every rule given, the other tables are at the first.",
    )
    flags.DEFINE_bool(
        "export_scores",
        False,
        "Tasks of labels, up to 100 classes: also write every example's label and both "
        "models' scores, scores.csv.",
    )
    flags.register_validator(
        "personalization_fraction",
        lambda texts: optimizer_flags.are_different_numbers(texts, lambda n: 0 < n <= 1, float),
        "expected different numbers above 0 and at most 1, such as 1,0.5,0.25",
    )
    flags.register_validator(
        "acceptance",
        lambda texts: len(set(texts)) == len(texts) > 0,
        "expected one or more different rules",
    )
    data_flags.register_check("acceptance", _check_rules, after=": ")


def _check_rules(texts: list[str]) -> None:
    """Checks what can be known before the data are; silos take no fraction."""
    for text in texts:
        acceptance.parse(text, is_silo=False)


def _define_backend() -> None:
    flags.DEFINE_enum("backend", "auto", BACKENDS, "What runs the clients' work.")
    flags.DEFINE_list(
        "tff_workers",
        [],
        "host:port of TFF workers, which motley_worker starts, to spread the clients of each round "
        "over: backend tff, of several machines. Not encrypted: use SSH tunnels or a private "
        "network.",
    )
    data_flags.register_check("tff_workers", worker_targets.check)
    flags.register_multi_flags_validator(
        ["backend", "tff_workers"],
        lambda values: not values["tff_workers"] or values["backend"] in ("auto", "tff"),
        "--tff_workers needs --backend=tff or auto",
    )
    flags.DEFINE_enum(
        "aggregator", "mean", AGGREGATORS, "How updates become one: the mean by examples; TFF's "
        "robust (zeroing and clipping), compressed, secure, differentially_private (clipping and "
        "noise, no zeroing, clients count alike), which need "
        "--backend=tff; the median or trimmed mean of each coordinate, which need tff or "
        "sequential.",
    )  # fmt: skip
    flags.DEFINE_float(
        "trim_share", 0.1, "--aggregator=trimmed_mean: share of the cohort left out at either end.",
        lower_bound=0.0,
    )  # fmt: skip
    flags.register_validator(
        "trim_share", lambda share: share < 0.5, "expected below 0.5, or nobody is left"
    )
    flags.DEFINE_float(
        "dp_noise_multiplier",
        1.0,
        "--aggregator=differentially_private: what the noise of a round is worth, as a multiple of "
        "the norm that updates are clipped to; at most 0.099 times the round's clients. The "
        "clipping norm itself takes a part, so more is added to the updates: run.json says how "
        "much.",
        lower_bound=0.0,
    )
    flags.DEFINE_integer(
        "threads_per_client",
        1,
        "Threads inside one client's arithmetic; 0 lets TensorFlow choose. With 1, results do "
        "not depend on the number of cores.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "memory_limit_gb",
        4.0,
        "What the clients that the vectorized backend stacks may take; more goes to sequential.",
        lower_bound=0.0,
    )
    flags.DEFINE_bool("tensorboard", False, "Also write TensorBoard scalars.")
