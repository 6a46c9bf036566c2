"""TFF's aggregators by name."""

from motley_tff.core.errors import UserError
from motley_tff.core.federated import tff


def build(
    name: str, noise_multiplier: float, clients_per_round: int
) -> tff.aggregators.WeightedAggregationFactory | tff.aggregators.UnweightedAggregationFactory:
    """Returns one of TFF's aggregation factories.

    Args:
      name: `mean` (weighted by examples); `robust` (adaptive zeroing and clipping, what the
        published fine-tuning trainer used); `compressed` (robust, with quantized updates);
        `secure` (robust, through TFF's simulated secure sum); `differentially_private` (zeroing,
        adaptive clipping and Gaussian noise, unweighted).
      noise_multiplier: Noise relative to the clipping norm, for `differentially_private`.
      clients_per_round: Expected cohort size, for `differentially_private`.

    Raises:
      UserError: If there is no aggregator of this name, or TFF refuses the noise.
    """
    factories = {
        "mean": tff.aggregators.MeanFactory,
        "robust": tff.learning.robust_aggregator,
        "compressed": tff.learning.compression_aggregator,
        "secure": tff.learning.secure_aggregator,
        "differentially_private": lambda: tff.learning.dp_aggregator(
            noise_multiplier, clients_per_round
        ),
    }
    if name not in factories:
        raise UserError(f"unknown aggregator {name!r}; expected one of {sorted(factories)}")
    try:
        return factories[name]()
    except ValueError as error:  # TFF bounds the noise by the cohort's size.
        raise UserError(
            f"--aggregator={name} with --dp_noise_multiplier={noise_multiplier:g} and "
            f"{clients_per_round} clients a round: {error}"
        ) from error
