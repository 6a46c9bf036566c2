"""Made-up examples that look like a data set, with planted differences."""
