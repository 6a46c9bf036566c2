"""The same client work run in different ways, with the same numbers."""
