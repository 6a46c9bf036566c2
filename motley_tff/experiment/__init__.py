"""The experiment: the loop of rounds, evaluations, and the directory that a run leaves."""
