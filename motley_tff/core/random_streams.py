"""Named random streams: every random choice of a run is a function of (seed, stream, indices).

Nothing here or elsewhere touches a global generator, so the order in which things happen never
changes what is drawn. This half is NumPy only; `tensor_random` draws inside graphs from the keys
made here.
"""

import hashlib

import numpy as np

# One name per kind of choice; a typing error must not open a new stream.
STREAMS = (
    "attack",
    "client_sampling",
    "cluster_seeding",
    "cohort_faults",
    "evaluation_partition",
    "evaluation_sampling",
    "generated",
    "held_out",
    "initial_weights",
    "local_training",
    "partition",
    "personalization",
    "rate_probe",
    "synthetic_data",
    "warm_start",
)


def _seed_sequence(seed: int, stream: str, *indices: int) -> np.random.SeedSequence:
    if stream not in STREAMS:
        raise ValueError(f"Unknown random stream {stream!r}; expected one of {STREAMS}.")
    # NumPy makes 32-bit words of these and pads with zeros: what is larger, or no index, would
    # draw what other indices draw.
    if not all(0 <= number < 2**32 for number in (seed, *indices)):
        raise ValueError(f"Expected numbers from 0 to 2**32 - 1, found {(seed, *indices)}.")
    digest = hashlib.sha256(stream.encode()).digest()
    return np.random.SeedSequence([seed, int.from_bytes(digest[:8], "little"), *indices])


def generator(base_random_seed: int, stream: str, index: int, *more: int) -> np.random.Generator:
    """Returns a NumPy generator for one choice, e.g. the cohort of round 7.

    Args:
      base_random_seed: The run's seed, from 0 to 2**32 - 1.
      stream: One of `STREAMS`.
      index: Tells choices of one stream apart (a round, say); 0 where there is one choice only.
      *more: Further such numbers, each from 0 to 2**32 - 1.

    Raises:
      ValueError: If the stream has no name here, or a number is out of its range.
    """
    sequence = _seed_sequence(base_random_seed, stream, index, *more)
    return np.random.Generator(np.random.PCG64(sequence))


def key(base_random_seed: int, stream: str, index: int, *more: int) -> np.ndarray:
    """Returns an int32 key of shape [2] for `tensor_random`, e.g. for one round of training.

    Args and errors are those of `generator`.
    """
    sequence = _seed_sequence(base_random_seed, stream, index, *more)
    return sequence.generate_state(2, np.uint32).view(np.int32)


def client_key(client_id: str) -> np.ndarray:
    """Returns an int32 key of shape [2] that depends on the client's id alone."""
    return np.frombuffer(hashlib.sha256(client_id.encode()).digest()[:8], np.int32)
