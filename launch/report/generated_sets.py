"""Figures of scores that motley_generative wrote (Wang et al. 2023, Figures 1 to 6).

- *Checkpoints*: each form over rounds, a line a run with the standard deviation over resamples;
  generators without rounds are level lines.
- *Forms*: all against avg, a point a set, of sets that no run made.
- *Pictures* of some sets, with their scores beside them.
"""

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from launch.report import runs, style
from motley_tff.core.errors import UserError
from motley_tff.files import array_files
from motley_tff.metrics.generative import scores

# `kid_biased` is `kid` and a constant.
_SCORES = (*(name for name in scores.DISTANCES if name != "kid_biased"), *scores.NEIGHBORS)
_CHECKPOINT = "checkpoint"
_WIDE = 50
_NUM_ROWS, _MOST_OTHERS, _NUM_PICTURES = 8, 3, 10
_REQUIRED = ("generated", "features", "num_features", "source", "fid_all", "fid_avg")


def draw(path: pathlib.Path) -> Iterator[style.Drawn]:
    """Yields the figures of a table, those that have a score to draw; UserError if it is none.
    Within `style.settings`.
    """
    table = runs.read(path, _REQUIRED, "generative")
    if table.empty:
        raise UserError(str(path), "no rows", "what motley_generative writes")
    unsaid = {"series": "", "parameter": np.nan, "file": ""}
    table = table.assign(**{name: empty for name, empty in unsaid.items() if name not in table})
    unordered = table[table["parameter"].isna()]
    if (table["source"] == _CHECKPOINT).any() and (names := _scores(table)):
        yield _checkpoints(table, names)
    if len(unordered) > 1 and (names := _scores(unordered)):
        yield _forms(unordered, names)
    if (pictures := _pictures(table)) is not None:
        yield pictures


def _scores(rows: pd.DataFrame) -> list[str]:
    """Returns the scores that all rows have in both forms."""
    named = [name for name in _SCORES if set(_forms_of(name)) <= set(rows)]
    return [name for name in named if np.isfinite(rows[_forms_of(name)]).all(axis=None)]


def _forms_of(name: str) -> list[str]:
    return [f"{name}_{form}" for form in scores.FORMS]


def _checkpoints(table: pd.DataFrame, names: Sequence[str]) -> style.Drawn:
    rows = table[table["source"] == _CHECKPOINT]
    level = table[table["parameter"].isna()]
    labels = [*dict.fromkeys(rows["series"]), *level["generated"]]
    looks = style.styles(labels)
    figure, axes = style.panels(len(names), 2)
    for line, name in zip(axes, names, strict=True):
        for ax, form in zip(line, scores.FORMS, strict=True):
            column = f"{name}_{form}"
            for label, of_run in rows.sort_values("parameter").groupby("series", sort=False):
                spread = of_run.get(f"{column}_std", 0.0)
                look = looks[str(label)]
                style.line(ax, str(label), of_run["parameter"], of_run[column], look, spread)
            for generated, value in zip(level["generated"], level[column], strict=True):
                look = looks[generated]
                ax.axhline(value, color=look.colour, linestyle=look.dashes, label=generated)
            ax.set_ylabel(column)
            if table[column].max() > _WIDE * table[column].min() > 0:
                ax.set_yscale("log")
    for ax in axes[-1]:
        ax.set_xlabel("round")
    style.legend_below(figure, axes[0][0])
    return style.Drawn(_CHECKPOINT, figure, _disagreements(table, names))


def _disagreements(rows: pd.DataFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns of how many pairs of sets the forms disagree."""
    first = rows.iloc[0]
    same = {"pairs": len(rows) * (len(rows) - 1) // 2,
            "features": f"{first['num_features']:g}, {first['features']}"}  # fmt: skip
    counts = {n: scores.num_disagreements(*rows[_forms_of(n)].T.to_numpy()) for n in names}
    return [{"score": name, "ordered differently": n, **same} for name, n in counts.items()]


def _forms(rows: pd.DataFrame, names: Sequence[str]) -> style.Drawn:
    figure, axes = style.grid(len(names), 1.6)
    many = len(rows) > 12
    looks = style.styles(list(rows["generated"]))
    for ax, name in zip(axes, names, strict=True):
        for row in rows.to_dict("records"):
            look = looks[row["generated"]]
            ax.plot(
                row[f"{name}_all"], row[f"{name}_avg"], "o" if many else look.marker,
                color=style.KEPT if many else look.colour, label=row["generated"], alpha=0.8,
            )  # fmt: skip
        ax.set(xlabel=f"{name}, all", ylabel=f"{name}, avg")
    if not many:
        style.legend_below(figure, axes[0])
    return style.Drawn("forms", figure, _disagreements(rows, names))


def _pictures(table: pd.DataFrame) -> style.Drawn | None:
    """Draws pictures of at most eight sets whose files are still there."""
    rows = [row for row in table.to_dict("records") if os.path.isfile(row["file"])]
    ordered = [row for row in rows if row["source"] == _CHECKPOINT]
    others = [row for row in rows if row["source"] != _CHECKPOINT]
    ordered = _spread(ordered, _NUM_ROWS - min(len(others), _MOST_OTHERS))
    chosen = [*ordered, *_spread(others, _NUM_ROWS - len(ordered))]
    strips = [(row, kept) for row in chosen if (kept := _some_pictures(row)) is not None]
    if not strips:
        return None
    figure = Figure(figsize=(style.COLUMN_WIDTH, 0.62 * len(strips)), layout="constrained")
    axes = figure.subplots(len(strips), 1, squeeze=False)[:, 0]
    for ax, (row, pictures) in zip(axes, strips, strict=True):
        strip = np.concatenate(list(pictures), axis=1)
        ax.imshow(strip.squeeze(), cmap="gray" if strip.shape[-1] != 3 else None)
        ax.axis("off")
        said = [f"{s} {row[f'{s}_all']:.4g}, {row[f'{s}_avg']:.4g}" for s in ("fid", "kid")]
        ax.set_title(style.plain(f"{row['generated']}: {'; '.join(said)}"), fontsize=6.5, pad=2)
    return style.Drawn("pictures", figure)


def _spread(values: Sequence[Any], number: int) -> list[Any]:
    """Returns at most so many, from the first to the last, as far apart as each other."""
    places = np.linspace(0, len(values) - 1, min(number, len(values))).round().astype(int)
    return [values[i] for i in places]


def _some_pictures(row: Mapping[Any, Any]) -> np.ndarray | None:
    """Returns copies, which do not keep the others in memory; None if the file has none."""
    try:
        images = array_files.read(row["file"], lambda name: name == "images").get("images")
    except (OSError, ValueError, IndexError):  # Or it is no longer the file that was scored.
        return None
    if images is None or images.ndim not in (3, 4) or not len(images):
        return None
    return images[_spread(range(len(images)), _NUM_PICTURES)]
