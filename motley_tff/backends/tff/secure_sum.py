"""A sum over clients through TFF's secure aggregation, of numbers other than model updates."""

from collections.abc import Callable

import numpy as np
import tensorflow_federated as tff

from motley_tff.backends.tff.runtime import tff_runtime


def secure_sum(values: np.ndarray, on_restart: Callable[[str], None]) -> np.ndarray:
    """Returns the sum over clients of values in 0..1, float32 [num_clients, n] -> float32 [n].

    A server sees this sum alone, of whole numbers that clients make of their values (in a
    simulation without the protocol, with its arithmetic). Bounds do not depend on the values, so
    none is clipped. Raises a WorkerError if TFF's worker is lost, again and again; `on_restart` is
    `tff_runtime`'s.
    """
    value_type = tff.TensorType(np.float32, values.shape[1:])
    process = tff.aggregators.SecureSumFactory(1.0, 0.0).create(value_type)
    with tff_runtime(on_restart):
        output = process.next(process.initialize(), list(values.astype(np.float32)))
    return np.asarray(output.result)
