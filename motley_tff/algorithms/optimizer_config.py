"""An optimizer as a frozen config, and what some algorithms require of theirs; no TensorFlow."""

import dataclasses
import math
from collections.abc import Mapping

from motley_tff.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer's name and hyperparameters.

    Attributes:
      name: A key of `optimizers.BUILDERS`.
      learning_rate: At least 0 (a tensor where several runs are trained at once).
      parameters: The optimizer's own, by TFF's argument names; those left out keep TFF's defaults.
    """

    name: str
    learning_rate: float
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def total_gain(self) -> float | None:
        """How much of an update the optimizer applies, in all later rounds together.

        1 for SGD at rate 1; None if that depends on the updates (Adam and other adaptive ones).
        """
        if self.name == "fedavgm":  # An average: its weights add up to 1.
            return self.learning_rate
        if self.name in ("sgd", "momentum"):
            default = 0.9 if self.name == "momentum" else 0.0
            return self.learning_rate / (1.0 - self.parameters.get("momentum", default))
        return None


def check(algorithm: str, server: OptimizerConfig, personal: OptimizerConfig) -> None:
    """Checks the optimizers of an algorithm for silos.

    Args:
      algorithm: A key of `algorithms.MULTI_TASK`.
      server: The server's.
      personal: That of the silos' own models.

    Raises:
      UserError: If the algorithm would not be itself under one of them.
    """
    if algorithm == "mr_mtl":
        _check_mean(server)
    is_plain = personal.name == "sgd" and not personal.parameters.get("momentum")
    if algorithm == "per_fedavg" and not is_plain:
        raise UserError(
            f"the personal optimizer is {personal.name}: per_fedavg trains the model for a step of "
            "plain SGD, and adapts it by such steps; give --personal_optimizer=sgd without momentum"
        )


def _check_mean(server: OptimizerConfig) -> None:
    gain = server.total_gain
    if gain is not None and math.isclose(gain, 1.0, rel_tol=1e-6):
        return
    makes = "no fixed share" if gain is None else f"{gain:.6g} times the whole"
    raise UserError(
        "mr_mtl's global model is the mean of the personal models: the server adds up their "
        f"changes, of which {server.name} at rate {server.learning_rate:g} makes {makes}; give "
        "--server_learning_rate=1 with --server_optimizer=sgd without momentum, or fedavgm"
    )
