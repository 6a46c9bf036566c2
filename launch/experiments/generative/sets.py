r"""Scores Wang et al.'s sets, which need no training, and draws both forms of each score.

    ./launch/run python launch/experiments/generative/sets.py --sets=gaussian --output_dir=DIR

`controlled.py` says what the five kinds of sets are; the clients' file is motley_generative's, and
--sets=files takes its --generated and --run.
--theorem writes the parts of the paper's Theorem 1 (see `theorem.py`) in place of scores, and
--wasserstein names sets whose 1-Wasserstein distance a critic estimates, too.
"""

import functools
import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from launch.experiments.generative import controlled, theorem
from launch.generative import sets as files
from motley_tff import commandline
from motley_tff.commandline.progress import TerminalProgress
from motley_tff.core import errors
from motley_tff.core.errors import UserError
from motley_tff.files import csv_files, text_tables
from motley_tff.metrics.generative import client_features, scores

FLAGS = flags.FLAGS
KINDS = ("gaussian", "nearest", "scaled", "classes", "extremes", "files")
_LIMITED = ("nearest", "scaled")  # Their clients keep an anchor's neighbours alone.
_SETS, _NUM_EXAMPLES = errors.name("sets"), errors.name("num_examples")
_WASSERSTEIN = errors.name("wasserstein")
_VARIED = {"gaussian": "variance", "nearest": "number of examples", "scaled": "covariance, times"}

flags.DEFINE_enum("sets", None, KINDS, "Which sets are scored.", required=True)
flags.DEFINE_string("clients", None, "File of the clients' examples (.npz).")
flags.DEFINE_multi_string("generated", [], "files: a generated set; repeat the flag for more.")
flags.DEFINE_multi_string("run", [], "files: a run of generative_trainer; repeat for more.")
flags.DEFINE_string(
    "features", None, "The file holds images, of which these features are taken: pca:K, or the "
    "directory of a run that trained a classifier.",
)  # fmt: skip
flags.DEFINE_integer("num_examples", None, "Score so many examples of each set.", lower_bound=2)
flags.DEFINE_integer(
    "num_kept", 20, "K of nearest and scaled: each client keeps an anchor and so many neighbours.",
    lower_bound=1,
)  # fmt: skip
flags.DEFINE_integer("num_anchors", 1, "nearest: so many anchors' neighbours.", lower_bound=1)
flags.DEFINE_string("only_client", None, "extremes: the client whose examples are given back.")
flags.DEFINE_integer(
    "num_neighbors", 0, "k of precision, recall, density and coverage; 0 leaves these out.",
    lower_bound=0,
)  # fmt: skip
flags.DEFINE_bool("theorem", False, "Write the parts of Theorem 1 in place of scores.")
flags.DEFINE_list("wasserstein", [], "Sets, by name, whose Wasserstein distance is estimated.")
flags.DEFINE_integer("base_random_seed", 0, "Seed of whatever is drawn.", lower_bound=0)
flags.DEFINE_string("output_dir", None, "Directory that gets the table and the figure.")


class Set(NamedTuple):
    """A set's examples [num_examples, num_features], and what differs in its series, or None."""

    features: np.ndarray
    parameter: float | None = None


Group = dict[str, Set]  # Sets by name, which are ranked together.


def main() -> None:
    """Makes the sets, scores them, prints, writes and draws."""
    folder = pathlib.Path(os.path.expanduser(FLAGS.output_dir)) if FLAGS.output_dir else None
    if folder and (not folder.absolute().parent.is_dir() or folder.is_file()):
        expected = "a directory, or the name of one to make"
        raise UserError(errors.name("output_dir"), str(folder), expected)
    rng = np.random.default_rng(FLAGS.base_random_seed)
    features_are, clients, groups = _make(rng)
    rows, notes = (_theorem if FLAGS.theorem else _score)(features_are, clients, groups)
    print(f"features: {features_are}, {clients.features.shape[1]} of them")
    _print(rows)
    if not FLAGS.theorem:
        _print_preferred(rows)
    for note in notes:
        print(f"note: {note}")
    if folder is None:
        return
    folder.mkdir(exist_ok=True)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = folder / f"{FLAGS.sets}{'_theorem' if FLAGS.theorem else ''}.csv"
    csv_files.write(table, columns, map(csv_files.formula_safe, rows), optional=columns)
    print(table)
    if not FLAGS.theorem:
        print(*_draw(folder, rows), sep="\n")


def _make(
    rng: np.random.Generator,
) -> tuple[str, client_features.ClientFeatures, dict[str, Group]]:
    """Returns (what features are, the clients, the groups by their series)."""
    if (FLAGS.sets == "gaussian") != (FLAGS.clients is None and not FLAGS.run):
        raise UserError(_SETS, FLAGS.sets, "gaussian without --clients, another one with them")
    if (FLAGS.sets == "files") != bool(FLAGS.generated or FLAGS.run):
        raise UserError(_SETS, FLAGS.sets, "files with --generated or --run, another without")
    if (FLAGS.sets == "extremes") != (FLAGS.only_client is not None):
        raise UserError(_SETS, FLAGS.sets, "extremes with --only_client, another one without")
    if FLAGS.sets in ("gaussian", "nearest") and FLAGS.num_examples is not None:
        expected = f"nothing, as it would change what {_SETS}={FLAGS.sets} varies"
        raise UserError(_NUM_EXAMPLES, FLAGS.num_examples, expected, "leave it out")
    if FLAGS.sets == "gaussian":
        clients, by_variance = controlled.gaussian(rng)
        sets = {f"var_x={v:g}": Set(features, v) for v, features in by_variance.items()}
        return "as given", clients, {"": sets | {"ideal": Set(clients.features)}}
    options = files.SetOptions(
        FLAGS.clients, FLAGS.generated, FLAGS.run, FLAGS.num_examples, features=FLAGS.features
    )
    if FLAGS.sets == "files":
        read = files.read(options)
        group = {name: Set(s.features, s.parameter) for name, s in read.generated.items()}
        return read.features_are, read.clients, {"": group}
    features_are, clients, _ = files.read_all(options, files.path(FLAGS.clients), {})
    try:
        return features_are, *_of_clients(clients, rng)
    except ValueError as error:
        raise UserError(errors.name("clients"), FLAGS.clients, str(error)) from error


def _of_clients(
    clients: client_features.ClientFeatures, rng: np.random.Generator
) -> tuple[client_features.ClientFeatures, dict[str, Group]]:
    """Returns (the clients, the groups); ValueError if the clients' examples do not allow it."""
    pooled = clients.features
    if FLAGS.sets in _LIMITED:
        clients = controlled.variance_limited(clients, FLAGS.num_kept, rng)
    if FLAGS.sets == "nearest":
        if FLAGS.num_anchors > len(pooled):
            raise ValueError(f"found {len(pooled)} examples, expected {FLAGS.num_anchors} anchors")
        anchors = rng.choice(len(pooled), FLAGS.num_anchors, replace=False).tolist()
        by_anchor = {
            a: {f"nearest {n}": Set(x, n) for n, x in controlled.nearest(pooled, a).items()}
            for a in anchors
        }
        return clients, {f"anchor {a}": group for a, group in by_anchor.items()}
    if FLAGS.sets == "scaled":
        scaled = controlled.scaled(pooled)
        sets = {f"covariance x {v:.3g}": Set(features, v) for v, features in scaled.items()}
    elif FLAGS.sets == "classes":
        sets = {name: Set(features) for name, features in controlled.classes(clients).items()}
    else:
        if FLAGS.only_client not in clients.ids:
            listed = ", ".join(clients.ids[:5])
            raise ValueError(f"--only_client={FLAGS.only_client}: expected one of {listed}, ...")
        extremes = controlled.extremes(clients, FLAGS.only_client)
        sets = {name: Set(features) for name, features in extremes.items()}
    return clients, {
        "": {name: own._replace(features=_drawn(name, own.features)) for name, own in sets.items()}
    }


def _drawn(name: str, features: np.ndarray) -> np.ndarray:
    """Returns --num_examples of a set, or all."""
    number = FLAGS.num_examples
    if number is None:
        return features
    if number > len(features):
        raise UserError(_NUM_EXAMPLES, number, f"at most {len(features)}, as {name} has")
    rng = np.random.default_rng(FLAGS.base_random_seed)
    return features[np.sort(rng.permutation(len(features))[:number])]


Rows = list[dict[str, Any]]


def _score(
    features_are: str, clients: client_features.ClientFeatures, groups: Mapping[str, Group]
) -> tuple[Rows, list[str]]:
    """Returns a row of scores for each set, group after group, and notes."""
    rows: Rows = []
    notes: dict[str, None] = {}
    progress = TerminalProgress()
    progress.start("score", sum(map(len, groups.values())))
    for series, group in groups.items():
        arrays = {name: own.features for name, own in group.items()}
        table = scores.table(
            clients, arrays, FLAGS.num_neighbors, features_are, on_set=progress.advance
        )
        for row in table.rows:
            rows.append(
                {"series": series, "parameter": group[str(row["generated"])].parameter, **row}
            )
        notes |= dict.fromkeys(table.notes)
    progress.finish()
    _add_critics(clients, groups, rows)
    return rows, list(notes)


def _add_critics(
    clients: client_features.ClientFeatures, groups: Mapping[str, Group], rows: Rows
) -> None:
    """Adds `w1_all` and `w1_avg` to the rows of the sets that --wasserstein names."""
    known = {row["generated"] for row in rows}
    if unknown := [name for name in FLAGS.wasserstein if name not in known]:
        listed = ", ".join(sorted(known)[:5])
        raise UserError(_WASSERSTEIN, unknown[0], f"sets such as {listed}")
    chosen = [row for row in rows if row["generated"] in FLAGS.wasserstein]
    if not chosen:
        return
    from launch.experiments.generative import wasserstein  # TensorFlow takes 3 s.

    progress = TerminalProgress()
    progress.start("critics", len(chosen) * len(clients.ids))
    for row in chosen:
        features = groups[row["series"]][row["generated"]].features
        row["w1_all"], row["w1_avg"] = wasserstein.forms(
            clients, features, FLAGS.base_random_seed, progress.advance
        )
    progress.finish()


def _theorem(
    features_are: str, clients: client_features.ClientFeatures, groups: Mapping[str, Group]
) -> tuple[Rows, list[str]]:
    """Returns the parts of Theorem 1 for each set, and notes."""
    if FLAGS.wasserstein:
        expected = "nothing beside --theorem, which writes no scores"
        raise UserError(_WASSERSTEIN, FLAGS.wasserstein, expected, "leave one of them out")
    rows: Rows = []
    notes: dict[str, None] = {}
    for series, group in groups.items():
        arrays = {name: own.features for name, own in group.items()}
        rows += [{"series": series, **row} for row in theorem.rows(clients, arrays, features_are)]
        notes |= dict.fromkeys(scores.few_examples(clients, arrays))
    return rows, list(notes)


def _print(rows: Rows) -> None:
    """Prints the numbers of the first forty sets."""
    hidden = ("series", "parameter", "generated", "features", "num_features")
    every = dict.fromkeys(name for row in rows for name in row)
    columns = [c for c in every if c not in hidden and not c.endswith(("_feature", "_rank"))]
    lines = [("set", *columns)]
    for row in rows[:40]:
        name = f"{row['series']}: {row['generated']}" if row["series"] else row["generated"]
        cells = (f"{row[column]:.6g}" if column in row else "" for column in columns)
        lines.append((name, *cells))
    print("\n".join(text_tables.aligned(lines)))


def _names(rows: Rows) -> list[str]:
    """Returns the scores that all rows have in both forms."""
    names = (*scores.DISTANCES, *scores.NEIGHBORS)
    columns = [[f"{name}_{form}" for form in scores.FORMS] for name in names]
    return [
        name
        for name, pair in zip(names, columns, strict=True)
        if all(np.isfinite(row.get(column, np.nan)) for row in rows for column in pair)
    ]


def _print_preferred(rows: Rows) -> None:
    """Prints on how many pairs the two forms disagree, and which parameter each prefers."""
    for name in _names(rows):
        pairs = disagreeing = 0
        preferred: dict[str, list[str]] = {form: [] for form in scores.FORMS}
        for _, of_series in itertools.groupby(rows, key=lambda row: row["series"]):
            group = list(of_series)
            forms = [[row[f"{name}_{form}"] for row in group] for form in scores.FORMS]
            disagreeing += scores.num_disagreements(*forms)
            pairs += len(group) * (len(group) - 1) // 2
            best = min if name in scores.DISTANCES else max
            varied = [row for row in group if row["parameter"] is not None]
            for form in scores.FORMS if varied else ():
                row = best(varied, key=lambda row: row[f"{name}_{form}"])
                preferred[form].append(f"{row['parameter']:.4g}")
        line = f"{name}: the two forms order {disagreeing} of {pairs} pairs of sets differently"
        if preferred["all"]:
            line += "; all prefers {}, avg {}".format(*map(" ".join, preferred.values()))
        print(line)


def _draw(folder: pathlib.Path, rows: Rows) -> Sequence[pathlib.Path]:
    """Draws both forms of each score over the parameter, or against each other without one."""
    from launch.report import style  # Matplotlib takes 0.5 s.

    names = _names(rows)
    varied = [row for row in rows if row["parameter"] is not None]
    with style.settings():
        figure, axes = style.grid(len(names))
        looks = dict(zip(scores.FORMS, style.styles(scores.FORMS).values(), strict=True))
        for ax, name in zip(axes, names, strict=True):
            if not varied:
                ax.plot(*([row[f"{name}_{f}"] for row in rows] for f in scores.FORMS), "o")
                ax.set(xlabel=f"{name}, all", ylabel=f"{name}, avg")
                continue
            for form, look in looks.items():
                by_parameter: dict[float, list[float]] = {}
                for row in varied:
                    by_parameter.setdefault(row["parameter"], []).append(row[f"{name}_{form}"])
                means = np.array([np.mean(values) for values in by_parameter.values()])
                spread = np.array([np.std(values) for values in by_parameter.values()])
                style.line(ax, form, [*by_parameter], means, look, spread)
            ax.set(xlabel=_VARIED.get(FLAGS.sets, "round"), ylabel=name)
            if FLAGS.sets in _LIMITED:
                ax.set_xscale("log")
        if varied:
            style.legend_below(figure, axes[0])
        paths, _ = style.save(figure, folder, FLAGS.sets, "svg")
    return paths


run = functools.partial(commandline.run_main, main)

if __name__ == "__main__":
    run()
