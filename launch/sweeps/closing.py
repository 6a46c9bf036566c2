"""The table at the end of a sweep: what came out, the paper's values beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

from launch.sweeps import plans
from motley_tff.files import text_tables

_HEADER = ("test clients", "here", "paper")
_NAMES = {
    "baseline_mean": "baseline: mean over clients",
    "baseline_std": "baseline: std over clients",
    "personalized_mean": "personalized: mean over clients",
    "personalized_std": "personalized: std over clients",
    "pct_clients_hurt": "% hurt",
    "largest_cluster_pct": "% in the largest cluster",
}


def text(
    plan: plans.Plan, rows: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]]
) -> str:
    """Returns the table.

    Args:
      plan: The sweep.
      rows: Those of `sweep.csv`.
      best: Those of `best.csv`.
    """
    failed = [row for row in rows if row["status"] == "failed"]
    title = (
        f"{plan.grid.algorithm} on {plan.grid.dataset}: {plan.grid.num_points} settings x "
        f"{plan.num_seeds} seeds; {len(failed)} of {len(rows)} runs failed"
    )
    lines = [title, *([f"the first because: {failed[0]['reason']}"] if failed else [])]
    if not best:
        return "\n".join([*lines, "no setting finished under all seeds"])
    lines.append(f"chosen on validation clients: {_setting(plan, best[0])}")
    if plan.grid.paper.get("best"):
        setting = " ".join(f"{name}={value}" for name, value in plan.grid.paper["best"].items())
        lines.append(f"the paper's:                  {setting}")
    return "\n".join([*lines, "", *_table(best), "", "mean ± std over seeds"])


def _setting(plan: plans.Plan, row: Mapping[str, Any]) -> str:
    names = " ".join(f"{name}={row[name]}" for name in plan.grid.grid)
    return names or "the only setting"


def _table(best: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [_HEADER]
    for row in best:
        here = _cell(row["mean"], row["std_over_seeds"])
        cells.append((_NAMES[row["statistic"]], here, _cell(row["paper_mean"], row[_PAPER_STD])))
    source = best[0]["paper_source"]
    cells[0] = (f"{best[0]['metric']} of {_HEADER[0]}", "here", source or "")
    return [f"  {line}" for line in text_tables.aligned(cells, gap="   ")]


_PAPER_STD = "paper_std_over_seeds"


def _cell(mean: float | None, std: float | None) -> str:
    if mean is None:
        return ""
    return f"{mean:.4g}" + ("" if std is None else f" ± {std:.2g}")
