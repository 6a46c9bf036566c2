"""Reading and writing CSVs, run metadata, checkpoints and weights."""
