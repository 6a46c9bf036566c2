"""Running things: the bootstrap, the doctor, sweeps, clusters and benchmarks."""
