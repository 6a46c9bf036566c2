"""Personalized federated learning, cross-device and cross-silo, on TensorFlow Federated."""

__version__ = "0.1.0"
