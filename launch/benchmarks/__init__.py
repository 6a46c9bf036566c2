"""motley_benchmark: the backends on the same work, beside PyTorch."""
