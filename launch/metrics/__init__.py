"""Metrics of tables that runs left: reading, computing, writing."""
