"""Who takes part in a round."""

import numpy as np


def remaining(
    client_ids: tuple[str, ...], dropout_rate: float, stream: np.random.Generator
) -> tuple[str, ...]:
    """Returns those of a cohort who do not drop out; at least one stays.

    Args:
      client_ids: The cohort.
      dropout_rate: Probability that a client gets the model and sends nothing back, in [0, 1).
      stream: Decides who; not drawn from without a rate.
    """
    if not dropout_rate:
        return client_ids
    drawn = stream.random(len(client_ids))
    stay = drawn >= min(dropout_rate, drawn.max())
    return tuple(client_id for client_id, stays in zip(client_ids, stay, strict=True) if stays)
