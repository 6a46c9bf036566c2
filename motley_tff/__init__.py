"""Personalized federated learning, cross-device and cross-silo, on TensorFlow Federated."""

__version__ = "0.1.0"

# Raised whenever the same flags give other numbers: nothing goes on with what another one began.
RESULTS_VERSION = 2
