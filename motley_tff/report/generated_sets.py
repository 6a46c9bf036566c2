"""Figures of scores that motley_generative wrote (Wang et al. 2023, Figures 1 to 6).

- *Experiments*: both forms of each score over what an experiment varies of its generator, the mean
  over anchors with their standard deviation; what each form prefers is marked.
- *Checkpoints*: each form over rounds, a line a run with the standard deviation over resamples;
  generators without rounds are level lines.
- *Forms*: all against avg, a point a set, where sets have no order, such as classes.
- *Pictures* of some sets, checkpoints or clients, with their scores beside them.
"""

import os
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from motley_tff.core.errors import UserError
from motley_tff.files import array_files
from motley_tff.metrics.generative import controlled, gaussian, scores
from motley_tff.report import runs, style

# `kid_biased` is `kid` and a constant.
_DISTANCES = (*(name for name in scores.DISTANCES if name != "kid_biased"), "w1")
_SCORES = (*_DISTANCES, *scores.NEIGHBORS)
_OF_SOME = ("w1",)  # Scores of the sets that were named.
_GAUSSIAN, _CHECKPOINT, _ANCHORS = "gaussian", "checkpoint", "nearest"
_VARIED = {
    _GAUSSIAN: "its variance",
    "nearest": "its examples",
    "scaled": "covariance ×",
}
# Those that FID-avg and FID-all prefer, and how many samples are drawn of each distribution.
_VARIANCES, _NUM_SAMPLES = (1.0, 2.0), 400
_WIDE = 50
_NUM_ROWS, _MOST_BESIDE, _NUM_PICTURES = 8, 3, 10
_OF_CLIENTS = ("classes", "extremes")  # Whose pictures are some clients'.
_REQUIRED = ("generated", "features", "num_features", "source", "fid_all", "fid_avg")


def draw(path: pathlib.Path) -> Iterator[style.Drawn]:
    """Yields the figures of a table, those that have a score to draw; UserError if it is none.
    Within `style.settings`.
    """
    yield from (drawn for drawn in _figures(_read(path)) if drawn)


def _read(path: pathlib.Path) -> pd.DataFrame:
    table = runs.read(path, _REQUIRED, "generative")
    if table.empty:
        raise UserError(f"{path} has no rows; expected what motley_generative --output writes")
    unsaid = (("series", ""), ("parameter", np.nan), ("file", ""), ("num_kept", np.nan))
    for column, empty in unsaid:
        if column not in table:
            table[column] = empty
    return table


def _figures(table: pd.DataFrame) -> Iterator[style.Drawn | None]:
    for source in _VARIED:
        rows = table[(table["source"] == source) & table["parameter"].notna()]
        if len(rows):
            curves = _curves(source, rows)
            yield curves
            if curves and source == _GAUSSIAN:
                yield _samples()
    if (table["source"] == _CHECKPOINT).any():
        yield _checkpoints(table)
    unordered = table[table["parameter"].isna()]
    if len(unordered) > 1:
        yield _forms(unordered)
    yield _pictures(table)


def _scores(rows: pd.DataFrame) -> list[str]:
    """Returns the scores that all rows have in both forms; of `_OF_SOME`, that some have."""
    given = [name for name in _SCORES if set(_forms_of(name)) <= set(rows)]
    kept = {name: _having(rows, name)[_forms_of(name)] for name in given}
    return [name for name in given if len(kept[name]) and np.isfinite(kept[name]).all(axis=None)]


def _forms_of(name: str) -> list[str]:
    return [f"{name}_{form}" for form in scores.FORMS]


def _having(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Returns the rows that a score is drawn of."""
    return rows.dropna(subset=_forms_of(name)) if name in _OF_SOME else rows


def _features(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    kept = first["num_kept"]
    clients = f" Clients of an example and its K = {kept:g} neighbours." if kept == kept else ""
    return f"Features: {first['features']}, {first['num_features']:g} of them.{clients}"


def _curves(source: str, rows: pd.DataFrame) -> style.Drawn | None:
    names, num_series = _scores(rows), rows["series"].nunique()
    if not names:
        return None
    figure, axes = style.grid(len(names))
    looks, best = style.styles(scores.FORMS).values(), []
    for ax, name in zip(axes, names, strict=True):
        preferred = []
        for form, look in zip(scores.FORMS, looks, strict=True):
            by_parameter = _having(rows, name).groupby("parameter")[f"{name}_{form}"]
            mean, spread = by_parameter.mean(), by_parameter.std(ddof=0)
            ax.plot(mean.index, mean, label=form, markevery=2, **look.options)
            ax.fill_between(mean.index, mean - spread, mean + spread, **look.band)
            place = mean.idxmin() if name in _DISTANCES else mean.idxmax()
            ax.plot(
                place, mean[place], look.marker, color=look.colour, markersize=8, mfc="none",
                clip_on=False,
            )  # fmt: skip
            preferred.append(f"{place:g}")
        if source != _GAUSSIAN:
            ax.set_xscale("log")
        ax.set_ylabel(name)
        best.append(f"{name} {preferred[0]} and {preferred[1]}")
    _label_lowest(axes, _VARIED[source])
    style.legend_below(figure, axes[0])
    anchors = f" Means over {num_series} anchors, bands their deviation." if num_series > 1 else ""
    caption = (
        f"Preferred by the all and the avg form, and ringed: {'; '.join(best)}.{anchors} "
        f"{_features(rows)}"
    )
    return style.Drawn(source, f"Both forms of scores: {source}", figure, caption)


def _samples() -> style.Drawn:
    """Draws both clients and two generators of the paper's normal distributions."""
    clients, by_variance = gaussian.draw(np.random.default_rng(0), _NUM_SAMPLES)
    figure, axes = style.grid(len(_VARIANCES), 1.7)
    for ax, variance in zip(axes, _VARIANCES, strict=True):
        named = zip(clients.ids, clients.parts, strict=True)
        sets = {f"client {name}": clients.features[part] for name, part in named}
        sets["generator"] = by_variance[variance]
        looks = style.styles(list(sets))
        for label, points in sets.items():
            look = looks[label]
            ax.plot(*points.T, look.marker, color=look.colour, markersize=1.2, label=label)
        ax.set(title=f"var_x = {variance:g}", aspect="equal", xlim=(-5, 5), ylim=(-4, 4))
    style.legend_below(figure, axes[0])
    caption = (
        f"{_NUM_SAMPLES} samples of each distribution, drawn anew; left the generator that FID-avg "
        "prefers, right the one that FID-all does."
    )
    return style.Drawn("samples", "Clients' and generators' samples: gaussian", figure, caption)


def _label_lowest(axes: Sequence[Axes], label: str) -> None:
    for ax in axes[-2:]:
        ax.set_xlabel(label)


def _checkpoints(table: pd.DataFrame) -> style.Drawn | None:
    names = _scores(table)
    if not names:
        return None
    rows = table[table["source"] == _CHECKPOINT]
    level = table[table["parameter"].isna()]
    labels = [*dict.fromkeys(rows["series"]), *level["generated"]]
    looks = style.styles(labels)
    figure, axes = style.panels(len(names), 2)
    for line, name in zip(axes, names, strict=True):
        for ax, form in zip(line, scores.FORMS, strict=True):
            column = f"{name}_{form}"
            for label, of_run in _having(rows, name).groupby("series", sort=False):
                of_run = of_run.sort_values("parameter")
                ax.errorbar(
                    of_run["parameter"], of_run[column], of_run.get(f"{column}_std"),
                    label=label, elinewidth=0.6, **looks[str(label)].options,
                )  # fmt: skip
            beside = _having(level, name)
            for generated, value in zip(beside["generated"], beside[column], strict=True):
                look = looks[generated]
                ax.axhline(value, color=look.colour, linestyle=look.dashes, label=generated)
            ax.set_ylabel(column)
            if table[column].max() > _WIDE * table[column].min() > 0:
                ax.set_yscale("log")
    _label_lowest(axes[-1], "round")
    style.legend_below(figure, axes[0][0])
    return style.Drawn(_CHECKPOINT, "Scores of checkpoints", figure, _of_pairs(table, names))


def _of_pairs(rows: pd.DataFrame, names: Sequence[str]) -> str:
    """Returns how often the forms disagree on sets that were ranked together."""
    groups, counts = _groups(rows), []
    pairs = _num_pairs(groups)
    for name in names:
        own = [_having(group, name) for group in groups]
        found = (
            scores.num_disagreements(*(group[c].tolist() for c in _forms_of(name))) for group in own
        )
        of = f" of {_num_pairs(own)}" if _num_pairs(own) != pairs else ""
        counts.append(f"{name} {sum(found)}{of}")
    return f"Pairs of {pairs} that the two forms order differently: {', '.join(counts)}. " + (
        _features(rows)
    )


def _num_pairs(groups: Sequence[pd.DataFrame]) -> int:
    return sum(len(group) * (len(group) - 1) // 2 for group in groups)


def _groups(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Returns the rows that were ranked together: all, or of several anchors each one's, and the
    others'.
    """
    anchors = rows["series"].where(rows["source"] == _ANCHORS, "")
    is_one = anchors[anchors != ""].nunique() < 2
    return [rows] if is_one else [group for _, group in rows.groupby(anchors)]


def _forms(rows: pd.DataFrame) -> style.Drawn | None:
    names = _scores(rows)
    if not names:
        return None
    figure, axes = style.grid(len(names), 1.6)
    many = len(rows) > 12
    looks = style.styles(list(rows["generated"]))
    for ax, name in zip(axes, names, strict=True):
        for row in _having(rows, name).to_dict("records"):
            look = looks[row["generated"]]
            ax.plot(
                row[f"{name}_all"], row[f"{name}_avg"], "o" if many else look.marker,
                color=style.KEPT if many else look.colour, label=row["generated"], alpha=0.8,
            )  # fmt: skip
        ax.set(xlabel=f"{name}, all", ylabel=f"{name}, avg")
    if not many:
        style.legend_below(figure, axes[0])
    return style.Drawn("forms", "The all and the avg form", figure, _of_pairs(rows, names))


def _pictures(table: pd.DataFrame) -> style.Drawn | None:
    """Draws pictures of at most eight sets whose files are still there."""
    rows = [row for row in table.to_dict("records") if os.path.isfile(row["file"])]
    ordered = [row for row in rows if row["source"] == _CHECKPOINT]
    beside = [row for row in rows if row["source"] != _CHECKPOINT]
    ordered = _spread(ordered, _NUM_ROWS - min(len(beside), _MOST_BESIDE))
    chosen = [*ordered, *_spread(beside, _NUM_ROWS - len(ordered))]
    found = [(row, kept) for row in chosen if (kept := _some_pictures(row)) is not None]
    if not found:
        return None
    figure = Figure(figsize=(style.COLUMN_WIDTH, 0.62 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), 1, squeeze=False)[:, 0]
    for ax, (row, pictures) in zip(axes, found, strict=True):
        strip = np.concatenate(list(pictures), axis=1)
        ax.imshow(strip.squeeze(), cmap="gray" if strip.shape[-1] != 3 else None)
        ax.axis("off")
        said = [f"{s} {row[f'{s}_all']:.4g}, {row[f'{s}_avg']:.4g}" for s in ("fid", "kid")]
        ax.set_title(style.plain(f"{row['generated']}: {'; '.join(said)}"), fontsize=6.5, pad=2)
    caption = f"At most ten pictures of each, its scores all, avg. {_features(table)}"
    return style.Drawn("pictures", "Pictures beside their scores", figure, caption)


def _spread(values: Sequence[Any], number: int) -> list[Any]:
    """Returns at most so many, from the first to the last, as far apart as each other."""
    places = np.linspace(0, len(values) - 1, min(number, len(values))).round().astype(int)
    return [values[i] for i in places]


def _some_pictures(row: Mapping[Any, Any]) -> np.ndarray | None:
    """Returns copies, which do not keep the others in memory; None if the file has none."""
    of_clients = row["source"] in _OF_CLIENTS
    try:
        arrays = array_files.read(row["file"], lambda name: of_clients or name == "images")
        images = _of_clients(arrays, row["generated"]) if of_clients else arrays.get("images")
    except (OSError, ValueError, IndexError):  # Or it is no longer the file that was scored.
        return None
    if images is None or images.ndim not in (3, 4) or not len(images):
        return None
    return images[_spread(range(len(images)), _NUM_PICTURES)]


def _of_clients(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    """Returns the images of the clients that a set is named after; None if one is not there."""
    if "client_id" in arrays:
        images, ids = arrays.get("images"), arrays["client_id"].astype(str)
        kept = _named(name, set(ids.tolist()))
        return None if images is None or not kept else images[np.isin(ids, kept)]
    kept = _named(name, arrays)
    return np.concatenate([arrays[n] for n in kept]) if kept else None


def _named(name: str, ids: Collection[str]) -> list[str]:
    """Returns the clients of a set's name: one, two, all of a mixture, or none that are there."""
    if name == controlled.MIXTURE:
        return list(ids)
    whole = [name] if name in ids else name.split(" + ")
    return whole if set(whole) <= set(ids) else []
