"""Evaluations: what a trained model and its personalized models are worth to each client."""
