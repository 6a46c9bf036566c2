"""Named random streams: every random choice of a run is a function of (seed, stream, indices).

Nothing here or elsewhere touches a global generator, so the order in which things happen never
changes what is drawn. This half is NumPy only; `tensor_random` draws inside graphs from the keys
made here.
"""

import hashlib

import numpy as np

# One name per kind of choice; a typing error must not open a new stream.
STREAMS = (
    "client_sampling",
    "cluster_seeding",
    "cohort_faults",
    "evaluation_sampling",
    "held_out",
    "initial_weights",
    "local_training",
    "partition",
    "personalization",
    "synthetic_data",
    "warm_start",
)


def _seed_sequence(base_random_seed: int, stream: str, *indices: int) -> np.random.SeedSequence:
    if stream not in STREAMS:
        raise ValueError(f"Unknown random stream {stream!r}; expected one of {STREAMS}.")
    digest = hashlib.sha256(stream.encode()).digest()
    entropy = [base_random_seed, int.from_bytes(digest[:8], "little"), *indices]
    return np.random.SeedSequence(entropy)


def generator(base_random_seed: int, stream: str, *indices: int) -> np.random.Generator:
    """Returns a NumPy generator for one choice, e.g. the cohort of round 7.

    Args:
      base_random_seed: The run's non-negative seed.
      stream: One of `STREAMS`.
      *indices: Non-negative integers that tell choices of one stream apart (a round, say).

    Raises:
      ValueError: If the stream has no name here.
    """
    return np.random.Generator(np.random.PCG64(_seed_sequence(base_random_seed, stream, *indices)))


def key(base_random_seed: int, stream: str, *indices: int) -> np.ndarray:
    """Returns an int32 key of shape [2] for `tensor_random`, e.g. for one round of training."""
    sequence = _seed_sequence(base_random_seed, stream, *indices)
    return sequence.generate_state(2, np.uint32).view(np.int32)


def client_key(client_id: str) -> np.ndarray:
    """Returns an int32 key of shape [2] that depends on the client's id alone."""
    return np.frombuffer(hashlib.sha256(client_id.encode()).digest()[:8], np.int32)
