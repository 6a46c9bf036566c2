"""What a user can set of evaluations, as frozen values; no TensorFlow."""

from __future__ import annotations

import dataclasses

from motley_tff.core.candidates import Tuning
from motley_tff.core.options import ABOVE_0, option
from motley_tff.evaluation import acceptance

MAX_OOD_EXAMPLES = 100_000


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """What evaluations look at. Their tables are at the first fraction and rule.

    `defaults.resolve` fills in what is None, from the algorithm and its personalization.
    """

    personalization_fractions: tuple[float, ...] = option(
        (1.0,),
        "Shares of the personalization set to personalize on; with several, sizes.csv has them "
        "all, the other tables the first",
        "personalization_fraction",
        lower=ABOVE_0,
        upper=1,
        everyday="evaluation",
    )
    acceptance: tuple[str, ...] = option(
        ("always",),
        "Which clients take their own model in place of the global one: always, "
        "min_examples:N, validated[:fraction] or validated_loss[:fraction]; "
        "acceptance.csv has every rule given, the other tables are at the first",
        parse=acceptance.parse,
        everyday="evaluation",
    )
    ood_examples: int = option(
        0,
        "Examples of other test clients that test clients' models are scored on, of each client as "
        "many, fewer in all if some have too few; 0 for none",
        upper=MAX_OOD_EXAMPLES,
        trainers=("motley_tff.run",),
    )
    hurt_margin: float | None = option(
        None,
        "How much worse off a client must be to be truly hurt, in units of the metric; by default "
        "a point of accuracy (0.01), or 1% of the baseline's mean error",
        lower=ABOVE_0,
    )
    tuning: Tuning | None = option(
        None,
        "Who chooses a candidate: all clients together (global), or each silo by its validation "
        "part (per_client); global by default",
        {"finetuning_trainer": "finetune_tuning", "knn_per_trainer": "knn_tuning"},
        everyday="evaluation",
    )
    metrics: tuple[str, ...] = option(
        (),
        "Further metrics: balanced_accuracy, macro_f1, roc_auc; absolute_error, r2 of numbers",
    )
    tuning_metric: str | None = option(
        None,
        "What candidates and rounds are chosen by on validation data: one of those, loss, or a "
        "metric of the data set (default: the reported one; of classes of your own data loss)",
    )
    include_baseline_candidate: bool | None = option(
        None,
        "Whether the global model itself may be chosen (default: true)",
        trainers=("finetuning_trainer", "knn_per_trainer"),
    )

    def choice(
        self, tuning: Tuning = "global", includes_baseline: bool = True
    ) -> tuple[Tuning, bool]:
        """Returns (tuning, whether the global model may be chosen), the arguments where it says
        neither; their own defaults are those of a global model that clients personalize.
        """
        includes = self.include_baseline_candidate
        return self.tuning or tuning, includes_baseline if includes is None else includes
