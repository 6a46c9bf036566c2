"""The registry of figures: what each one is called, needs, and is drawn by.

Every figure is a function from a `Comparison` to data (nothing where the tables do not have it),
one from data to a Matplotlib figure, and one to a caption. A new figure is one file and one line
here.
"""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from motley_tff.report import (
    acceptance,
    box_plots,
    candidate_curves,
    collapse,
    communication,
    composition,
    deltas,
    distribution_shift,
    improvement,
    page,
    style,
    sweep_curves,
    tuning,
)
from motley_tff.report.comparisons import Comparison

# More runs than these are counted in a figure's source, not named.
_MAX_NAMED = 8


class Kind(NamedTuple):
    """One kind of figure, with what the report says is needed where it is missing.

    Attributes:
      name: Of the files.
      paper: Its number in the paper, empty for a figure the paper does not have.
      tables: What it is drawn from.
      data: What it shows: a list, or a tuple that holds one; empty or None without it.
      draw: Takes the data, the comparison, and the styles of the series.
    """

    name: str
    paper: str
    title: str
    needs: str
    tables: str
    data: Callable[[Comparison], Any]
    draw: Callable[[Any, Comparison, style.Styles], Figure]
    caption: Callable[[Any, Comparison], str]

    @property
    def heading(self) -> str:
        """Its title, with its number in the paper."""
        return f"{self.title} ({self.paper})" if self.paper else self.title


KINDS = (
    Kind(
        "box_plots", "Figure 2", "Per-client metric", "clients.csv with finite values",
        "clients.csv", box_plots.data, box_plots.draw, box_plots.caption,
    ),
    Kind(
        "delta_by_rank", "Figures 3(b), 8(b)", "Who gains and who is hurt",
        "a run whose global model was trained", "clients.csv",
        deltas.by_rank, deltas.draw, deltas.caption,
    ),
    Kind(
        "delta_by_examples", "Figure 8(c)", "Gain and size of the personalization set",
        "a run whose global model was trained", "clients.csv",
        deltas.by_examples, deltas.draw, deltas.caption,
    ),
    Kind(
        "rate_curves", "Figures 3(c), 9(c)", "Fine-tuning rates",
        "a fine-tuning run with several --finetune_learning_rate", "candidates.csv",
        candidate_curves.rates, candidate_curves.draw, candidate_curves.caption,
    ),
    Kind(
        "rate_deltas", "Figures 9(a), 9(b)", "Gain at two fine-tuning rates",
        "a fine-tuning run with several rates of which one has the best mean and another one the "
        "fewest clients hurt", "candidates.csv",
        candidate_curves.rate_deltas, deltas.draw, deltas.caption,
    ),
    Kind(
        "epoch_curves", "Figures 3(a), 8(a)", "Fine-tuning epochs",
        "a fine-tuning run of two epochs or more", "candidates.csv",
        candidate_curves.epochs, candidate_curves.draw, candidate_curves.caption,
    ),
    Kind(
        "sweep_curves", "Figures 3(c), 9(c)", "Hyperparameters of the sweep",
        "a sweep with a numeric hyperparameter of several values", "sweep.csv",
        sweep_curves.data, sweep_curves.draw, sweep_curves.caption,
    ),
    Kind(
        "distribution_shift", "Figure 4", "In and out of distribution", "a run with --evaluate_ood",
        "candidates.csv", distribution_shift.data, distribution_shift.draw,
        distribution_shift.caption,
    ),
    Kind(
        "collapse", "Figure 5(a)", "Mode collapse", "a run of hypcluster_trainer with rounds",
        "rounds.csv", collapse.data, collapse.draw, collapse.caption,
    ),
    Kind(
        "communication", "Figures 5(b), 5(c)", "Communication",
        "a run that was evaluated in two rounds or more", "summary.csv",
        communication.data, communication.draw, communication.caption,
    ),
    Kind(
        "composition", "Figure 5(d)", "Clusters", "a run of hypcluster_trainer", "clusters.csv",
        composition.data, composition.draw, composition.caption,
    ),
    Kind(
        "coefficient_curves", "Figures 6(a), 6(b)", "kNN-Per's coefficient",
        "a run of knn_per_trainer", "candidates.csv",
        candidate_curves.coefficients, candidate_curves.draw, candidate_curves.caption,
    ),
    Kind(
        "size_curves", "Figure 6(c)", "Size of the personalization set",
        "a run with several --personalization_fraction", "sizes.csv",
        candidate_curves.sizes, candidate_curves.draw, candidate_curves.caption,
    ),
    Kind(
        "tuning", "Figures 7, 11", "Tuning for each silo or for all",
        "a silo run whose silos would choose different candidates", "clients.csv",
        tuning.data, tuning.draw, tuning.caption,
    ),
    Kind(
        "acceptance", "section 3.1, remark", "Acceptance rules", "a run with --acceptance",
        "acceptance.csv", acceptance.data, acceptance.draw, acceptance.caption,
    ),
    Kind(
        "improvement", "", "Quantum of improvement",
        "a run of local training beside others of the same seed", "clients.csv",
        improvement.data, improvement.draw, improvement.caption,
    ),
)  # fmt: skip


def draw_all(
    comparison: Comparison, stem: str, folder: pathlib.Path, vector: str
) -> tuple[list[page.Image], list[Kind]]:
    """Draws all figures; returns (those drawn, the kinds for which there are no data).

    The files' names begin with `stem`, `vector` is `svg` or `pdf`.
    """
    images, absent = [], []
    labels = [series.label for series in comparison.series]
    labels += [sweep_curves.name_of(a) for s in comparison.sweeps for a in s.rows["algorithm"]]
    styles = style.styles(list(dict.fromkeys(labels)))
    for kind in KINDS:
        data = kind.data(comparison)
        if not data:
            absent.append(kind)
            continue
        with style.settings():
            figure = kind.draw(data, comparison, styles)
            files, svg = style.save(figure, folder, f"{stem}_{kind.name}", vector)
        anchor, tables = f"data-{stem}-{kind.name}", _source(kind, data, comparison)
        caption = kind.caption(data, comparison)
        images.append(page.Image(anchor, kind.heading, caption, tables, svg, files))
    return images, absent


def _source(kind: Kind, data: Any, comparison: Comparison) -> str:
    """Returns which tables a figure is of, and whose: of the series that it shows."""
    if kind.tables == "sweep.csv":
        return f"sweep.csv of {_listed([str(sweep.path) for sweep in comparison.sweeps])}"
    fields = [data] if isinstance(data, list) else data
    parts = [part for field in fields if isinstance(field, list) for part in field]
    shown = {getattr(part, "label", getattr(part, "series", None)) for part in parts}
    series = [s for s in comparison.series if s.label in shown] or comparison.series
    return f"{kind.tables} of {_listed([run.run_id for s in series for run in s.runs])}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
