"""motley_generative: scores generated examples against clients' real ones."""
