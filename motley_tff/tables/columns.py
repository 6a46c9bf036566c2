"""The columns of every table: name, kind, unit, meaning. What is written, read, checked and
documented is written, read, checked and documented by these.

    columns.names("clients", **columns.of_task("cross_silo"))   # in the order of the file
    columns.find("clients", "baseline").kind                    # "float32"

A name with a placeholder stands for several columns, or for none: `train_<metric>`.
`python -m motley_tff.tables.columns` writes them into the page beside this file.
"""

import itertools
import pathlib
import re
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from motley_tff import metrics
from motley_tff.core import candidates
from motley_tff.metrics import scorecard

# `float32` is a number that was one; `count` a whole number, 0 or more; `binary` is 0 or 1.
Kind = Literal["text", "number", "float32", "count", "binary"]

# Whose validation data choose a silo's candidate; both are in the tables of silos.
WAYS: tuple[candidates.Tuning, ...] = typing.get_args(candidates.Tuning)
# Whose scores are in the tables beside each other.
MODELS = ("baseline", "personalized")


class Column(NamedTuple):
    """A column.

    Attributes:
      name: Its name, perhaps with one `<placeholder>`.
      kind: What its cells are.
      meaning: What they say, as the documentation has it.
      can_be_empty: Whether a cell may be empty: not applicable, or not finite.
      optional: Whether a writer may leave it out of a row.
    """

    name: str
    kind: Kind
    meaning: str
    can_be_empty: bool = False
    optional: bool = False

    @property
    def placeholder(self) -> str:
        """What stands between its angle brackets, or nothing."""
        match = re.search("<(.*)>", self.name)
        return match[1] if match else ""


class Table(NamedTuple):
    """A table: what a row is of, which commands and flags leave it, and its columns in order."""

    row: str
    when: str
    columns: tuple[Column, ...]


_KEYS = (
    Column("run_id", "text", "the experiment's name"),
    Column("dataset", "text", "the task"),
    Column("algorithm", "text", "what was trained, and how it was personalized"),
    Column("base_random_seed", "text", "seed of every random choice; a key, not a quantity"),
    Column(
        "round", "count", "training rounds before this evaluation; of a table of rounds its number"
    ),
    Column("split", "text", "`valid` or `test`: which clients, of silos which part of their data"),
)
RUN = tuple(column.name for column in _KEYS)
_CLIENT = Column("client_id", "text", "`<dataset>:<id>`")
_CANDIDATE = (
    "`0` the baseline; fine-tuning's epoch or `lr<rate>_epoch<n>`; kNN-Per's `c<coefficient>` or "
    "`k<neighbors>_c<coefficient>`; `personal` a silo's own model; `chosen` a cluster's"
)
_SHARED_CANDIDATE = "the candidate all clients have; `per_client` where theirs differ"
_OOD = "on examples of other clients (`--evaluate_ood`; test clients only)"
_NUM_CLIENTS = Column("num_clients", "count", "clients in the row")
_COUNTS = (
    Column("num_unscored", "count", "clients with nothing to score: in no mean, no share", True),
    Column(
        "num_diverged",
        "count",
        "clients whose own model has outputs or a score that are not finite: in no mean, but hurt "
        "unless the global model diverged for them, too",
        True,
    ),
)
# Of a row over clients.
_BASELINE = (
    Column("candidate", "text", _SHARED_CANDIDATE, True),
    Column("baseline_mean", "number", "mean over clients under the global model", True),
    Column("baseline_std", "number", "standard deviation over clients", True),
)
_PERSONALIZED = (
    Column("personalized_mean", "number", "mean over clients with the chosen candidate", True),
    Column("personalized_std", "number", "standard deviation over clients (of n, not n - 1)", True),
)
_HURT = Column("pct_clients_hurt", "number", "percentage worse off with their own model", True)
# Of a run in a sweep.
STATISTICS = (
    "baseline_mean", "baseline_std", "personalized_mean", "personalized_std", "pct_clients_hurt",
    "largest_cluster_pct",
)  # fmt: skip
_OF_VALID = (
    "of valid clients: a setting is chosen by `valid_personalized_mean`, or `valid_baseline_mean` "
    "where the grid says `choose_by: baseline`; by neither where it says `nothing`"
)
# Of a scorecard.
_COSTS = {
    "rounds": "rounds, as far as they count",
    "bytes": "bytes of these, both ways, of all clients",
    "seconds": "seconds of these",
}
_ROC_AUCS = {
    "pooled": "ROC-AUC of all clients' examples (`--export_scores`; of classes the mean over them)",
    "mean_over_clients": "mean of the clients' own",
    "weighted_by_positives": "the same, weighted by their positives",
    "weighted_by_negatives": "the same, weighted by their negatives",
    "weighted_by_pairs": "the same, weighted by both numbers' product",
}


def _keys(*names: str) -> tuple[Column, ...]:
    return tuple(column for column in _KEYS if column.name in names)


def _ood(name: str, meaning: str) -> Column:
    return Column(f"ood_{name}<ood>", "float32", f"{meaning}, {_OOD}", True, True)


_OF_A_ROUND = (
    Column("seconds", "number", "seconds of wall time"),
    Column(
        "slowest_client_seconds",
        "number",
        "what the slowest client took; empty where they are not trained one by one",
        True,
    ),
    Column("server_seconds", "number", "what adding updates and the server's step took", True),
    Column("bytes_down", "count", "bytes the server sent to all of the cohort"),
    Column("bytes_up", "count", "bytes it got back"),
    Column("largest_bytes_down", "count", "the most it sent to one client", True),
    Column("largest_bytes_up", "count", "the most it got back from one", True),
)

TABLES: Mapping[str, Table] = {
    "clients": Table(
        "evaluated round, split, client",
        "always",
        (
            *_KEYS,
            _CLIENT,
            Column("cluster_id", "count", "the cluster whose model it takes", True),
            Column("candidate", "text", f"its candidate: {_CANDIDATE}", True),
            Column("num_personalization_examples", "count", "examples it personalizes on", True),
            Column("num_evaluation_examples", "count", "examples it is evaluated on"),
            Column("metric", "text", "the metric's name"),
            Column("higher_is_better", "binary", "the metric's direction"),
            Column(
                "baseline",
                "float32",
                "the metric under the global model; of HypCluster, the first cluster's",
                True,
            ),
            Column("personalized", "float32", "the metric under the client's own model", True),
            Column("delta", "number", "what it gained; positive is better, for errors too", True),
            Column("is_hurt", "binary", "whether it is worse off with its own model", True),
            Column("baseline_loss", "float32", "mean loss under the global model", True),
            Column("personalized_loss", "float32", "mean loss under its own model", True),
            Column(
                "reference",
                "number",
                "text: accuracy of always saying its most frequent word",
                True,
            ),
            Column("group", "text", "which planted or known group it belongs to", True),
            Column("candidate_<way>", "text", "candidate chosen for all, or by the silo", True),
            Column("personalized_<way>", "float32", "the metric under that candidate", True),
            Column("is_hurt_<way>", "binary", "whether it is worse off with that candidate", True),
            Column("baseline_<further>", "float32", "a further metric: global model", True),
            Column("personalized_<further>", "float32", "a further metric: own model", True),
            _ood("baseline", "the global model"),
            _ood("personalized", "the client's own model"),
        ),
    ),
    "candidates": Table(
        "evaluated round, split, client, candidate",
        "always",
        (
            *_keys("run_id", "round", "split"),
            _CLIENT,
            Column("candidate", "text", _CANDIDATE),
            Column("metric", "text", "the metric's name"),
            Column("value", "number", "the metric under this candidate", True),
            Column("loss", "number", "the mean loss under this candidate", True),
            _ood("value", "the metric"),
        ),
    ),
    "summary": Table(
        "evaluated round, split",
        "always",
        (
            *_KEYS,
            _NUM_CLIENTS,
            *_COUNTS,
            Column("baseline_num_diverged", "count", "the same of the global model", True),
            Column(
                "diverged_candidates",
                "text",
                "candidates that diverged for some client: not chosen while another is left",
                True,
            ),
            *_BASELINE,
            *_PERSONALIZED,
            *(Column(name, "number", metrics.meaning(name), True) for name in metrics.POPULATION),
            Column("reference_mean", "number", "mean of `reference`", True),
            Column("bytes_down_total", "count", "bytes to clients so far, warm starts included"),
            Column("bytes_up_total", "count", "bytes from clients so far"),
            Column("candidate_<way>", "text", _SHARED_CANDIDATE, True),
            Column("personalized_mean_<way>", "number", "mean under those candidates", True),
            Column("personalized_std_<way>", "number", "standard deviation of the same", True),
            Column("pct_clients_hurt_<way>", "number", "percentage hurt by those", True),
            _ood("baseline_mean", "mean of the global model"),
            _ood("personalized_mean", "mean of clients' own models"),
            *(
                Column(f"{model}_roc_auc_{average}<scores>", "number", meaning, True, True)
                for model in MODELS
                for average, meaning in _ROC_AUCS.items()
            ),
        ),
    ),
    "rounds": Table(
        "round",
        "always",
        (
            *_keys("run_id", "round"),
            Column("num_clients", "count", "clients that answered"),
            Column("train_loss", "number", "mean loss over their examples, as they trained", True),
            Column("train_<metric>", "number", "the metric, as they trained", True),
            *_OF_A_ROUND,
            Column("cluster_<i>_share", "number", "the cluster's share of the clients", True),
        ),
    ),
    "warm_start": Table(
        "round of a warm start and model",
        "of algorithms with clusters, with a warm start",
        (
            *_keys("run_id"),
            Column("model", "count", "the cluster's, from 1; 0: updates that one was split by"),
            *_keys("round"),
            Column("num_clients", "count", "clients that answered"),
            Column("train_loss", "number", "mean loss over their examples, as they trained", True),
            *_OF_A_ROUND,
        ),
    ),
    "clusters": Table(
        "evaluated round, split, cluster, group",
        "of algorithms with clusters",
        (
            *_keys("run_id", "round", "split"),
            Column("cluster_id", "count", "the cluster"),
            Column("group", "text", "the planted or known group; empty if none is known", True),
            _NUM_CLIENTS,
        ),
    ),
    "sizes": Table(
        "evaluated round, split, share of the personalization set",
        "with several `--personalization_fraction`",
        (
            *_KEYS,
            Column("personalization_fraction", "number", "share each client personalizes on"),
            _NUM_CLIENTS,
            *_COUNTS,
            *_BASELINE,
            *_PERSONALIZED,
            _HURT,
        ),
    ),
    "acceptance": Table(
        "evaluated round, split, rule",
        "with an `--acceptance` other than `always`",
        (
            *_KEYS,
            Column("rule", "text", "which clients take their own model"),
            _NUM_CLIENTS,
            *_COUNTS,
            Column("num_accepted", "count", "clients that take it"),
            *_PERSONALIZED,
            _HURT,
        ),
    ),
    "scores": Table(
        "evaluated round, split, client, example",
        "with `--export_scores`",
        (
            *_KEYS,
            _CLIENT,
            Column(
                "class", "text", "which class is positive, against the rest; empty of two", True
            ),
            Column("label", "binary", "1 is positive"),
            Column(
                "baseline_score", "float32", "the global model's score; higher is positive", True
            ),
            Column("personalized_score", "float32", "the client's own model's", True),
        ),
    ),
    "relations": Table("silo", "by Mocha; a column each silo, too", (_CLIENT,)),
    "sweep": Table(
        "run",
        "by `motley_sweep`; the grid's flags are columns, too",
        (
            *_keys("run_id", "dataset", "algorithm"),
            Column("base_random_seed", "count", "seed of every random choice"),
            Column("status", "text", "`finished` or `failed`"),
            Column("reason", "text", "why it failed", True),
            Column("metric", "text", "the metric's name", True),
            Column("higher_is_better", "binary", "the metric's direction", True),
            Column("round", "count", "the evaluation that is reported", True),
            _BASELINE[0],
            Column("num_clients", "count", "test clients", True),
            *(
                Column(f"{split}_{statistic}", "number", meaning, True)
                for split, meaning in (("valid", _OF_VALID), ("test", "of test clients: reported"))
                for statistic in STATISTICS
            ),
        ),
    ),
    "best": Table(
        "statistic of test clients, of the chosen setting",
        "by `motley_sweep`; the grid's flags are columns, too",
        (
            *_keys("dataset", "algorithm"),
            Column("metric", "text", "the metric's name"),
            Column("statistic", "text", "such as `personalized_mean`"),
            Column("mean", "number", "its mean over seeds"),
            Column("std_over_seeds", "number", "its standard deviation over seeds (of n)"),
            Column("paper_mean", "number", "what the grid's paper has", True),
            Column("paper_std_over_seeds", "number", "the same", True),
            Column("num_seeds", "count", "seeds"),
            Column(
                "chosen_by", "text", "`baseline` or `personalized`: whose validation mean chose"
            ),
            Column("paper_source", "text", "where the paper has it", True),
        ),
    ),
    "tasks": Table(
        "process",
        "by `motley_sweep`",
        (
            Column("task", "text", "its number"),
            Column("runs", "count", "runs that it trained"),
            Column("status", "text", "`finished` or `failed`", True),
            Column("reason", "text", "why it failed", True),
            Column("seconds", "number", "seconds of wall time of the last try", True),
            Column("cpu_seconds", "number", "seconds of processor time", True),
            Column("peak_memory_mb", "number", "the most memory it had", True),
            Column("host", "text", "the machine", True),
        ),
    ),
    "heterogeneity": Table(
        "client, label",
        "by `motley_doctor --dataset_name`, a file a data set in `--figures_dir`",
        (
            _CLIENT,
            Column("label", "text", "a label, or a range of targets"),
            Column("share", "number", "share of the client's examples"),
        ),
    ),
    "scorecard": Table(
        "method",
        "by `launch/experiments/fedeval/radar.py`",
        (
            Column("method", "text", "the method"),
            Column("run_id", "text", "its run"),
            *(Column(axis, "number", "points, 0 to 5", True) for axis in scorecard.AXES),
            Column("value", "number", "test mean of the scored model"),
            Column("local_value", "number", "of local training", True),
            Column("central_value", "number", "of the model that is trained in one place", True),
            Column("central_disparity", "number", "how much worse than that; 0.02 is 2%", True),
            *(Column(name, "number", what, True) for name, what in _COSTS.items()),
            *(Column(f"{name}_score", "number", "points for it, 0 to 5", True) for name in _COSTS),
            *(
                Column(f"{kind}_{suffix}", "number", meaning, True)
                for suffix, meaning in (
                    ("value", "of the run with IID clients, drop-outs or stragglers"),
                    ("disparity", "its loss by clients that differ, or by faults; 0.02 is 2%"),
                    ("points", "points for that"),
                )
                for kind in ("iid", "dropout", "straggler")
            ),
            Column("exchange", "text", "what clients and server exchange", True),
            Column(
                "attacked_<how>",
                "number",
                "test mean of the scored model under an attack, of clients that do not",
                True,
            ),
        ),
    ),
    "generative": Table(
        "generated set",
        "by `motley_generative --output=FILE`, under any name",
        (
            Column("generated", "text", "the set"),
            Column("num_examples", "count", "examples of it that are scored"),
            Column("features", "text", "what is compared, such as `pca:64`", True),
            Column("num_features", "count", "how many features an example has"),
            Column(
                "examples_per_feature",
                "number",
                "fewest examples a feature, of the set and all clients together: below 10 "
                "`fid_all` is too high",
            ),
            Column(
                "client_examples_per_feature",
                "number",
                "fewest, of the set and the smallest client: below 10 `fid_avg` is too high",
            ),
            Column("<score>_all", "number", "against all clients' examples together", True),
            Column("<score>_avg", "number", "mean over clients, weighted by examples", True),
            *(
                Column(f"<score>_{form}_{suffix}", "number", meaning, True)
                for suffix, meaning in (
                    ("rank", "1 is best, of the sets that stand beside each other"),
                    ("std", "standard deviation over random halves, with `--resamples`"),
                )
                for form in ("all", "avg")
            ),
            Column("num_classes", "count", "classes that `--classifier` knows", True),
            Column("label_entropy", "number", "of the classes that it finds, in nats", True),
            Column("smallest_class_share", "number", "share of the rarest class, 0..1", True),
            Column("source", "text", "`file` or `checkpoint`"),
            Column("series", "text", "the run that made it", True),
            Column("parameter", "number", "the round of a checkpoint", True),
            Column("file", "text", "the file of its examples", True),
        ),
    ),
}
# What an evaluation writes, in this order: the summary comes last and vouches for the others.
EVALUATION_TABLES = (
    "candidates", "clients", "clusters", "sizes", "acceptance", "scores", "summary"
)  # fmt: skip
# What tables of earlier versions lack: a run that goes on has empty cells there.
LATER = (
    "num_unscored", "num_diverged", "baseline_num_diverged", "diverged_candidates"
)  # fmt: skip
OPTIONAL = frozenset(
    column.name.partition("<")[0]
    for table in TABLES.values()
    for column in table.columns
    if column.optional
)


def names(table: str, **values: Sequence[str]) -> tuple[str, ...]:
    """Returns a table's columns, in the order of the file; `values` are `placeholder=its values`.

    One without values stands for no column. `ood` and `scores` are there or not: their one value
    is "".
    """
    groups = itertools.groupby(TABLES[table].columns, lambda column: column.placeholder)
    return tuple(name for key, group in groups for name in _filled(key, list(group), values))


def _filled(
    key: str, group: Sequence[Column], values: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    for value in values.get(key, ()) if key else [""]:
        for column in group:
            yield column.name.replace(f"<{key}>", value)


def of_task(
    setting: str,
    further: Sequence[str] = (),
    with_ood: bool = False,
    with_scores: bool = False,
) -> dict[str, Sequence[str]]:
    """Returns the placeholders' values in an evaluation's tables.

    In the setting `cross_silo` there are both ways of choosing a candidate, in `cross_device` none;
    `further` are the task's metrics but the first.
    """
    ways = WAYS if setting == "cross_silo" else ()
    return {
        "way": ways,
        "further": further,
        "ood": [""] if with_ood else [],
        "scores": [""] if with_scores else [],
    }


def table_of(stem: str) -> str:
    """Returns which table a file is by its name, such as `heterogeneity_school`; else `sweep`."""
    known = [name for name in TABLES if stem == name or stem.startswith(f"{name}_")]
    return known[0] if known else "sweep"


def find(table: str, name: str) -> Column | None:
    """Returns the column of a table that a name in its header stands for, None if it is unknown."""
    for column in TABLES[table].columns:
        pattern = re.escape(_shown(column))
        if re.fullmatch(re.sub("<.*>", ".+", pattern), name):
            return column
    return None


def _shown(column: Column) -> str:
    """Returns a name without the placeholders that stand for nothing."""
    return re.sub("<ood>|<scores>", "", column.name)


def documentation() -> str:
    """Returns the tables of all columns, as the page beside this file has them, in Markdown."""
    keys = _rows(_KEYS, ())
    parts = [f"| key | kind | meaning |\n|---|---|---|\n{keys}"]
    for name, table in TABLES.items():
        rows = _rows(table.columns, _KEYS)
        parts.append(
            f"### `{name}.csv`\n\nA row per {table.row}.\nWritten {table.when}.\n\n"
            f"| column | kind | meaning |\n|---|---|---|\n{rows}"
        )
    return "\n\n".join(parts) + "\n"


def _rows(columns: Sequence[Column], left_out: Sequence[Column]) -> str:
    """Returns a row a column; the baseline's and the personalized models' share one."""
    lines: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        if column not in left_out:
            kind = column.kind + "?" * column.can_be_empty
            lines.setdefault((kind, column.meaning), []).append(f"`{_shown(column)}`")
    return "\n".join(
        f"| {', '.join(shown)} | {kind} | {meaning} |" for (kind, meaning), shown in lines.items()
    )


if __name__ == "__main__":
    page = pathlib.Path(__file__).with_name("README.md")
    parts = re.split("(<!-- columns: (?:begin|end) -->\n?)", page.read_text("utf-8"))
    if len(sys.argv) > 1 or len(parts) != 5:
        sys.exit(f"expected no arguments, and columns: begin and columns: end once in {page}")
    page.write_text("".join([*parts[:2], documentation(), *parts[3:]]), encoding="utf-8")
