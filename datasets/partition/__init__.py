"""Which examples a client has, and which of them train, validate and test."""
